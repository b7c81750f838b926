"""Fig. 2c: the vocabulary of the bundled text model on its two leading singular vectors."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main(["figures", "2c", "--out", "figures/out", "--force"])
