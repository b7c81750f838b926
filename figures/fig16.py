"""Fig. 16: ε-rank of W_Q, and of one head's rows of it, against the number of heads."""

from _sweep import draw_sweep

from rankscope.plots import ranks_by_heads

if __name__ == "__main__":
    draw_sweep(__doc__, "heads", fig16=ranks_by_heads)
