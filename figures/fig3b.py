"""Fig. 3b: angles between embedded patches of the bundled Chronos-Bolt, and between random vectors."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main(["figures", "3b", "--model", "bundled-bolt", "--out", "figures/out", "--force"])
