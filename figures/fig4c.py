"""Fig. 4c: ranks by the rank of a fixed vocabulary, of chebyshev.json (figures/sweeps/chebyshev.yaml)."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main(["figures", "4c", "--out", "figures/out", "--force"])
