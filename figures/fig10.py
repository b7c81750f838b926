"""Fig. 10: sketches of many heads, of the experiment saved as f2.json."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main(["figures", "10", "--out", "figures/out", "--force"])
