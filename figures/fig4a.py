"""Fig. 4a: ranks by width, of the sweep saved as width.json (figures/sweeps/width.yaml)."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main(["figures", "4a", "--out", "figures/out", "--force"])
