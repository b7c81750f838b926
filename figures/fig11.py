"""Fig. 11: rank of an attention layer's output, of the experiment saved as f3.json."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main(["figures", "11", "--out", "figures/out", "--force"])
