"""One module per verb: its function ``run`` parses, calls the library, and shows the result."""
