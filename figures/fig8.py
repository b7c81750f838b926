"""Fig. 8: angles and spectra of the bundled models of four embedding strategies."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main(["figures", "8", "--out", "figures/out", "--force"])
