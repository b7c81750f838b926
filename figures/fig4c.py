"""Fig. 4c: mean ε-rank of W_Q against the algebraic rank of a fixed Chebyshev vocabulary."""

from _sweep import draw_sweep

from rankscope.plots import ranks_by_vocabulary

if __name__ == "__main__":
    draw_sweep(__doc__, "chebyshev", fig4c=ranks_by_vocabulary)
