"""Fig. 3a: spectra of Chronos-Bolt's embedded sinusoids, one line per patch size."""

from _sweep import draw_sweep

from rankscope.plots import spectra_by_patch

if __name__ == "__main__":
    draw_sweep(__doc__, "patch", fig3a=spectra_by_patch)
