"""Fig. 9: error of truncated attention, of the experiment saved as f1.json."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main(["figures", "9", "--out", "figures/out", "--force"])
