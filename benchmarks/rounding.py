"""Inference time and scores with ranks rounded to multiples of 8.

Both bundled models are compressed to one size ratio by `joint` (head widths) and by `whitened` (factors), with and
without ``--multiple 8``. The two models of a pair forecast in turns, each once a round; a ratio is the median over the
rounds of rounded / not. Rounding is downwards within the same budget, so the rounded model may be a little smaller.

    python benchmarks/rounding.py --out benchmarks/results/rounding.json
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from digests import COMPRESSION, SCORING
from provenance import conditions, origin, parser, save, spread

from rankscope.choices import Method

USED = (*COMPRESSION, *SCORING)
MODELS = ("bundled-bolt", "bundled")
METHODS: tuple[Method, ...] = ("joint", "whitened")


def pair(model: str, method: Method, options: argparse.Namespace, place: Path) -> dict[str, Any]:
    """Compress with and without rounding, compare times, and score both."""
    import torch

    from rankscope import load_pipeline
    from rankscope.compress import CompressOptions, compress
    from rankscope.io import codec
    from rankscope_eval import evaluate
    from rankscope_eval.bench.turns import alternate, timed

    folders: list[str | Path] = []
    ratios = []
    for multiple in (1, options.multiple):
        folder = place / f"{model}-{method}-{multiple}"
        report = compress(
            model, CompressOptions(attention_ratio=options.ratio, method=method, multiple=multiple), out=folder
        )
        folders.append(str(folder))
        ratios.append(report.selected_ratio)
    series = torch.randn(options.batch, 512, generator=torch.Generator().manual_seed(0)).cumsum(1)
    works = [load_pipeline(folder) for folder in folders]
    turns = [timed(partial(one.predict_quantiles, series, prediction_length=64)) for one in works]
    first, second = alternate(dict(zip("12", turns, strict=True)), options.rounds).values()
    scores = codec.plain(evaluate(folders, baseline=model))["summary"]
    whole = {row["model"]: row["relative_WQL"] for row in scores if row["benchmark"] == "all"}
    found: dict[str, Any] = {
        "model": model,
        "method": method,
        "size_ratio": ratios,
        "seconds": [spread(first), spread(second)],
        "time_ratio": spread([b / a for a, b in zip(first, second, strict=True)]),
        "relative_WQL_embedded": [whole[folder] for folder in folders],
    }
    time = found["time_ratio"]
    print(
        f"{model:13} {method:9} size {ratios[0]:.3f} → {ratios[1]:.3f}  time ×{time['median']:.3f} "
        f"({time['min']:.3f}–{time['max']:.3f})  WQL {whole[folders[0]]:.3f} → {whole[folders[1]]:.3f}"
    )
    return found


def main() -> None:
    """Measure all pairs, print one line each, write the JSON file."""
    words = parser(__doc__, multiple=8, batch=8, rounds=9)
    words.add_argument("--models", nargs="+", default=MODELS)
    words.add_argument("--ratio", type=float, default=0.15)
    options = words.parse_args()
    before = conditions()
    with tempfile.TemporaryDirectory() as place:
        rows = [pair(model, method, options, Path(place)) for model in options.models for method in METHODS]
    how = {name: value for name, value in vars(options).items() if name != "out"}
    save({**origin("rounding", *USED), **how, "before": before, "after": conditions(), "rows": rows}, options.out)


if __name__ == "__main__":
    main()
