"""Table 2: the tables saved for both bundled models (rankscope table2)."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main(["figures", "table2", "--out", "figures/out", "--force"])
