"""Trade-off of size and accuracy: compression methods across size ratios (the paper's Table 2)."""

from __future__ import annotations

from rankscope_eval.tradeoff.run import HEAL_STEPS, METHODS, RATIOS, SEEDS, Grid, run_table2
from rankscope_eval.tradeoff.scorers import TradeoffOptions

__all__ = ["Grid", "HEAL_STEPS", "METHODS", "RATIOS", "SEEDS", "TradeoffOptions", "run_table2"]
