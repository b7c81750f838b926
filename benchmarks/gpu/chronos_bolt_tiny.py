"""Train Chronos-Bolt tiny on one GPU in at most 25 minutes, as a candidate for the bundled model."""

from __future__ import annotations

from dataclasses import replace

from training import TINY, record, run

CONFIG = replace(TINY, family="chronos-bolt", max_steps=40_000, decay_steps=8000, learning_rate=4e-4)

if __name__ == "__main__":
    record("chronos_bolt_tiny", [run(CONFIG, "chronos-bolt-tiny")])
