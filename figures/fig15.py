"""Fig. 15: Chebyshev embeddings by their formula, seed 0."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main(["figures", "15", "--seed", "0", "--out", "figures/out", "--force"])
