"""``python -m rankscope_cli`` is the command ``rankscope``."""

from rankscope_cli.main import main

main()
