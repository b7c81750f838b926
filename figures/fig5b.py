"""Fig. 5b: the same of the bundled text model."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main(["figures", "5b", "--out", "figures/out", "--force"])
