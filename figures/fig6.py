"""Fig. 6: accuracy against time, of by_design.json and peers.json (benchmarks/by_design.py, benchmarks/peers.py)."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main(["figures", "6", "--out", "figures/out", "--force"])
