"""Fig. 2b: the vocabulary of the bundled Chronos-T5 on its two leading singular vectors."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main(["figures", "2b", "--model", "bundled", "--out", "figures/out", "--force"])
