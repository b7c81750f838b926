"""Low-rank designs with r0 = 3, 5, 7 against the stock tiny shape, at equal steps (Table 3)."""

from __future__ import annotations

from dataclasses import replace

from training import TINY, record, run

from rankscope.train.rank_schedule import RankDesign

STEPS, DECAY = 10_000, 2_000
DESIGNS = {"r64": None, "r3": RankDesign(3.0, 0.27), "r5": RankDesign(5.0, 0.35), "r7": RankDesign(7.0, 0.40)}

if __name__ == "__main__":
    base = replace(TINY, family="chronos-t5", max_steps=STEPS, decay_steps=DECAY, learning_rate=8e-4)
    record("by_design", [run(replace(base, low_rank=design), f"by-design-{name}") for name, design in DESIGNS.items()])
