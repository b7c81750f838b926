"""Fig. 6: accuracy against the time of the forecasts, and against the size of the attention, by design."""

from functools import partial

from _sweep import draw_sweep

from rankscope.plots import pareto

if __name__ == "__main__":
    draw_sweep(__doc__, "design", fig6=pareto, fig6_size=partial(pareto, cost="attention_parameters"))
