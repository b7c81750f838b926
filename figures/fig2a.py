"""Fig. 2a: spectra of the embedding matrices of every bundled model."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main(["figures", "2a", "--out", "figures/out", "--force"])
