"""Train Chronos-T5 tiny on one GPU in at most 25 minutes, as a candidate for the bundled model."""

from __future__ import annotations

from dataclasses import replace

from training import TINY, record, run

CONFIG = replace(TINY, family="chronos-t5", max_steps=20_000, decay_steps=4000, learning_rate=1e-3)

if __name__ == "__main__":
    record("chronos_t5_tiny", [run(CONFIG, "chronos-t5-tiny")])
