"""Fig. 7: embeddings of the number line: the bundled Chronos-T5 and Chronos-Bolt."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main(["figures", "7", "--model", "bundled", "--model", "bundled-bolt", "--out", "figures/out", "--force"])
