"""The command line of rankscope: one file per verb."""
