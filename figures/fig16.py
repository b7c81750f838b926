"""Fig. 16: ranks by number of heads, of the sweep saved as heads.json (figures/sweeps/heads.yaml)."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main(["figures", "16", "--out", "figures/out", "--force"])
