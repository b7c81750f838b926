"""Fig. 12: histograms of singular values of the bundled text model, Chronos-T5 and Chronos-Bolt."""

from rankscope_cli.main import main

if __name__ == "__main__":
    main(["figures", "12", "--out", "figures/out", "--force"])
