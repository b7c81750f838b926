"""Fig. 4b: ranks by width of text models, of the sweep saved as text_width.json."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main(["figures", "4b", "--out", "figures/out", "--force"])
