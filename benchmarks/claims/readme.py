"""What README and cards print, apart from the times (`claims.speed`)."""

from __future__ import annotations

from claims.records import Claim, Result

EMBEDDED = "--suite embedded"
SIX = "--suite {six}/backtest.yaml --data {six}"
DEV = "--suite {dev}/dev.yaml --data {dev}"
TWINS = {"bundled-bolt": "amazon/chronos-bolt-tiny", "bundled": "amazon/chronos-t5-tiny"}
"""Published models of the bundled ones' shapes."""

RESULTS: tuple[Result, ...] = (
    Result("quarter-bundled-bolt", "benchmarks/accuracy.py quarter bundled-bolt", minutes=4),
    *(
        Result(f"scores-{model}", f"benchmarks/scores.py {model} {SIX} --beside {twin}", minutes=4)
        for model, twin in TWINS.items()
    ),
    *(Result(f"development-{model}", f"benchmarks/scores.py {model} {DEV}", minutes=3) for model in TWINS),
    *(Result(f"ranks-{model}", f"benchmarks/ranks.py {model}", minutes=0.5) for model in TWINS),
    Result("storage-accuracy-bundled-bolt", f"benchmarks/accuracy.py storage bundled-bolt {DEV}", minutes=6),
    Result("storage-accuracy-bundled", "benchmarks/accuracy.py storage bundled --seeds 3", minutes=15),
    Result("heal-bundled-bolt", f"benchmarks/heal.py {SIX}", minutes=15),
    Result("allocation-bundled-bolt", f"benchmarks/accuracy.py allocation bundled-bolt {DEV}", minutes=40),
    Result("by-design", f"benchmarks/by_design.py by-design {SIX} --rounds 9", minutes=90, timed=True),
)
CLAIMS: tuple[Claim, ...] = ()
