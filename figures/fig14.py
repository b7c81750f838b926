"""Fig. 14: angles between rows of W_Q, of the sweep saved as head_angles.parquet (figures/sweeps/heads.yaml)."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main(["figures", "14", "--out", "figures/out", "--force"])
