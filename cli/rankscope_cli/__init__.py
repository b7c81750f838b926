"""Command-line interface of rankscope: one module per verb."""
