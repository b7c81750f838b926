"""Fig. 1: the three claims on one trained model per kind, and Table 2 of the bundled Chronos-Bolt."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main(["figures", "1", "--out", "figures/out", "--force"])
