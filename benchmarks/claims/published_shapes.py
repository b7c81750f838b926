"""Time and memory of the verbs on models in published shapes."""

from __future__ import annotations

from large import MODELS

from claims.records import Block, Claim, Document, Result

RESULTS: tuple[Result, ...] = (Result("large", "benchmarks/large.py", minutes=120, timed=True),)


def large(found: Document) -> str:
    """Time and peak memory of every verb, by model."""
    verbs = list(dict.fromkeys(verb for rows in found["models"].values() for verb in rows))
    lines = [
        "Verbs on larger published shapes, random weights, each a command of its own with its imports: time, peak "
        "resident memory, and in brackets the anonymous part of it (not backed by a file), which is what a machine "
        f"has to have ({found['series']} series of calibration, `joint` to half of all parameters, forecasts of two "
        "series; [results](../benchmarks/results/large.json)).",
        "",
        f"| | {' | '.join(verbs)} |",
        "|---" * (1 + len(verbs)) + "|",
    ]
    for model, rows in found["models"].items():
        cells = [took(rows[verb]) if verb in rows else "–" for verb in verbs]
        lines.append(f"| {model} | {' | '.join(cells)} |")
    missing = [model for model in MODELS if model not in found["models"]]
    if missing:
        lines += ["", f"Still to be measured: {', '.join(missing)}."]
    return "\n".join(lines)


def took(run: Document) -> str:
    """Time of a run with its peak memory, or that it failed."""
    if run["exit_code"]:
        return "failed"
    seconds = run["seconds"]
    time = f"{seconds:.0f}\u00a0s" if seconds < 600 else f"{seconds / 60:.0f}\u00a0min"
    whole, needed = run["peak_mb"] / 1000, run["peak_anonymous_mb"] / 1000
    return f"{time}<br>{whole:.1f}\u00a0GB ({needed:.1f})"


CLAIMS: tuple[Claim, ...] = (Block("docs/benchmarks.md", "large", ("large",), large, moves=0.1),)
