"""One module per verb: its ``run`` function parses options, calls the library and prints the result."""
