"""Times and memory: the runtime, streams, measuring, training, int8 layers."""

from __future__ import annotations

from claims.records import Claim, Result

RESULTS: tuple[Result, ...] = (
    Result("spectrum", "benchmarks/spectrum.py", minutes=4, timed=True),
    Result("runtime-tiny", "benchmarks/runtime.py --sizes tiny --compile", minutes=20, timed=True),
    Result("runtime-mini-small", "benchmarks/runtime.py --sizes mini,small", minutes=40, timed=True),
    Result("peers", "benchmarks/peers.py --suite {six}/backtest.yaml --data {six}", minutes=15, timed=True),
    Result("growth", "benchmarks/growth.py --figure figures/out/growth", minutes=10, timed=True),
    Result("stream", "benchmarks/stream.py --figure figures/out/stream", minutes=30, timed=True),
    Result("storage", "benchmarks/storage.py", minutes=5, timed=True),
    Result("compress", "benchmarks/compress.py", minutes=6, timed=True),
    Result("rounding", "benchmarks/rounding.py --models bundled-bolt --rounds 15", minutes=6, timed=True),
    Result("training", "benchmarks/training.py", minutes=5, timed=True),
)
CLAIMS: tuple[Claim, ...] = ()
