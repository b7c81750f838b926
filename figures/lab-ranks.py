"""Ranks of the models of the lab, of the study saved as lab_ranks.json."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main(["figures", "lab-ranks", "--out", "figures/out", "--force"])
