"""Run the ``rankscope`` command as ``python -m rankscope_cli``."""

from rankscope_cli.main import main

main()
