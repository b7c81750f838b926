"""Fig. 4a: mean ε-rank of W_Q against the width, over contours of rank/d."""

from _sweep import draw_sweep

from rankscope.plots import ranks_by_width

if __name__ == "__main__":
    draw_sweep(__doc__, "width", fig4a=ranks_by_width)
