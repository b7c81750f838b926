"""Fig. 13: singular values of W_Q during training (spectra.parquet), at the shape of the bundled Chronos-T5."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main(["figures", "13", "--out", "figures/out", "--force"])
