"""Fig. 5a: ranks of the attention matrices of the bundled Chronos-T5 by layer."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main(["figures", "5a", "--model", "bundled", "--out", "figures/out", "--force"])
