"""Fig. 3a: spectra by patch size, of the sweep saved as patch.json (figures/sweeps/patch.yaml)."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main(["figures", "3a", "--out", "figures/out", "--force"])
