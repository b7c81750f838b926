"""Fig. 5c: spectra of the layers' inputs of the bundled Chronos-T5 under a constant signal."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main(["figures", "5c", "--model", "bundled", "--out", "figures/out", "--force"])
