"""Time and memory of forecasts: stock against fast, float32 against bfloat16, dense against head-width, and peers.

Random weights in the shapes of the published checkpoints. In one alternating run per shape and batch: the stock
pipeline in float32 (the baseline) and bfloat16, the stock pipeline under ``torch.compile`` (--compile), int8 weights,
the fast runtime in float32 and bfloat16, head widths that keep 0.15 of the attention matrices, and Chronos-Bolt of the
same size. 20 sample paths of 64 steps from 512 values. From --few series on only the fast cases run beside the
baseline: every other one takes as long as it.

    python benchmarks/runtime.py --out benchmarks/results/runtime.json      # a quiet machine, three quarters of an hour
    python benchmarks/runtime.py --quick                                    # tiny, batches 1 and 8, three rounds
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from provenance import conditions, origin, save
from shapes import write_shape

USED = ("src/rankscope", "eval/rankscope_eval/bench", "benchmarks/shapes.py")
RATIO = 0.15


def peers(folder: Path, size: str, compiled: bool) -> list[str]:
    """Write the checkpoints of a size; the cases that are compared, the baseline first."""
    from rankscope.compress import CompressOptions, compress

    dense = write_shape(folder / f"t5-{size}", "chronos-t5", size)
    narrow = write_shape(folder / f"t5-{size}-head-width", "chronos-t5", size, "head-width", RATIO)
    int8 = folder / f"t5-{size}-int8"
    compress(dense, CompressOptions(storage="int8"), out=int8)
    cases = [f"{dense}:stock:float32", f"{dense}:fast:float32", f"{dense}:fast:bfloat16"]
    cases += [f"{narrow}:fast:float32", f"{narrow}:fast:bfloat16"]
    if size in ("tiny", "mini", "small", "base"):
        bolt = write_shape(folder / f"bolt-{size}", "chronos-bolt", size)
        cases += [f"{bolt}:stock:float32", f"{bolt}:fast:float32"]
    cases += [f"{dense}:stock:bfloat16", f"{narrow}:stock:float32", f"{int8}:fast:float32"]
    return [*cases, f"{dense}:compile:float32"] if compiled else cases


def quick(case: str) -> bool:
    """Whether a case takes much less time than the baseline."""
    return ":fast:" in case or "bolt-" in case


def joined(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """Several runs of one size as one document, batch by batch."""
    lists = ("rows", "ratios", "rates", "failures")
    return documents[0] | {name: [one for each in documents for one in each[name]] for name in lists}


def short(document: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The document without the temporary folder in the names of models."""

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            return value.replace(f"{folder}/", "")
        if isinstance(value, dict):
            return {key: clean(item) for key, item in value.items()}
        return [clean(item) for item in value] if isinstance(value, (list, tuple)) else value

    cleaned: dict[str, Any] = clean(document)
    return cleaned


def show(document: dict[str, Any]) -> None:
    """Print a line per case and batch."""
    over = {(one["label"], one["batch"]): one for one in document["ratios"]}
    for row in document["rows"]:
        ratio = over[row["label"], row["batch"]]
        spread = ratio["seconds"]
        roof = "   –" if row["achieved"] is None else f"{100 * row['achieved']:3.0f}%"
        print(
            f"{row['label']:36} batch {row['batch']:3} {1000 * row['seconds']['median']:9.1f} ms  "
            f"{spread['median']:5.2f} ({spread['min']:.2f}–{spread['max']:.2f})  {row['peak_bytes'] / 1e6:6.0f} MB  "
            f"{row['tokens_per_second']:9.0f} tokens/s  roof {roof}",
            flush=True,
        )


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="tiny,mini,small")
    parser.add_argument("--batches", default="1,8,32")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--few", type=int, default=32, metavar="SERIES", help="from here on only what is fast")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--compile", action="store_true", help="also the stock pipeline under torch.compile")
    parser.add_argument("--quick", action="store_true", help="tiny, batches 1 and 8, three rounds")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()

    from rankscope.io import codec
    from rankscope_eval.bench import Settings, run_bench

    sizes = ["tiny"] if options.quick else options.sizes.split(",")
    batches = (1, 8) if options.quick else tuple(int(one) for one in options.batches.split(","))
    rounds = options.rounds or (3 if options.quick else 5)
    before, documents = conditions(), {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for size in sizes:
            cases = peers(folder, size, options.compile)
            runs = []
            for batch in batches:
                some = cases[:1] + [one for one in cases[1:] if batch < options.few or quick(one)]
                settings = Settings((batch,), rounds=rounds, threads=options.threads)
                runs.append(short(codec.plain(run_bench(some, settings, progress=lambda *_: None)), folder))
            documents[size] = joined(runs)
            show(documents[size])
    found = {**origin("runtime", *USED), "conditions": {"before": before, "after": conditions()}, "sizes": documents}
    save(found, options.out)


if __name__ == "__main__":
    main()
