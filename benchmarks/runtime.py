"""Time and memory of forecasts: stock against fast, float32 against bfloat16, dense against head-width, and peers.

Random weights in the shapes of the published checkpoints, 20 sample paths of 64 steps from 512 values. In the same
rounds at all batch sizes: the stock pipeline in float32 (the baseline), the fast runtime in float32 and bfloat16, head
widths that keep 0.15 of the attention matrices, and Chronos-Bolt of the same size. By --slow instead, a batch size
after the other: what takes as long as the baseline (stock in bfloat16, with head widths, and under ``torch.compile``).

    python benchmarks/runtime.py --out benchmarks/results/runtime.json      # a quiet machine, three quarters of an hour
    python benchmarks/runtime.py --slow --batches 1,8 --out benchmarks/results/runtime-slow.json
    python benchmarks/runtime.py --quick                                    # tiny, batches 1 and 8, three rounds
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from provenance import conditions, origin, parser, save
from shapes import D_KV, write_shape

USED = ("src/rankscope/forecast", "src/rankscope/lowrank", "eval/rankscope_eval/bench", "benchmarks/shapes.py")
RATIO = 0.15


def peers(folder: Path, size: str) -> list[str]:
    """Write the checkpoints of a size; the cases that are compared, the baseline first."""
    from rankscope.compress import CompressOptions, compress
    from rankscope.train.rank_schedule import RankDesign

    dense = write_shape(folder / f"t5-{size}", "chronos-t5", size)
    narrow = write_shape(
        folder / f"t5-{size}-head-width", "chronos-t5", size, design=RankDesign(round(RATIO * D_KV), 0.0)
    )
    int8 = folder / f"t5-{size}-int8"
    compress(dense, CompressOptions(storage="int8"), out=int8)
    cases = [f"{dense}:stock:float32", f"{dense}:fast:float32", f"{dense}:fast:bfloat16"]
    cases += [f"{narrow}:fast:float32", f"{narrow}:fast:bfloat16"]
    if size in ("tiny", "mini", "small", "base"):
        bolt = write_shape(folder / f"bolt-{size}", "chronos-bolt", size)
        cases += [f"{bolt}:stock:float32", f"{bolt}:fast:float32"]
    slow = [f"{dense}:stock:bfloat16", f"{narrow}:stock:float32", f"{dense}:compile:float32"]
    return [*cases, *slow, f"{int8}:fast:float32"]


NAMES = {
    "t5-{}:stock:float32": "stock, float32",
    "t5-{}:stock:bfloat16": "stock, bfloat16",
    "t5-{}:compile:float32": "stock under torch.compile",
    "t5-{}:fast:float32": "fast, float32",
    "t5-{}:fast:bfloat16": "fast, bfloat16",
    "t5-{}-int8:fast:float32": "fast, int8 weights",
    "t5-{}-head-width:stock:float32": "head-width 0.15, stock",
    "t5-{}-head-width:fast:float32": "head-width 0.15, fast",
    "t5-{}-head-width:fast:bfloat16": "head-width 0.15, fast, bfloat16",
    "bolt-{}:stock:float32": "Chronos-Bolt, stock",
    "bolt-{}:fast:float32": "Chronos-Bolt, fast",
}
"""Cases of a size, in the order of the table's rows."""
BASELINE = next(iter(NAMES))


def number(value: float) -> str:
    """Format a ratio with two digits, or three above ten."""
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 20 else f"{value:.0f}"


def cells(documents: dict[str, dict[str, Any]]) -> dict[tuple[str, str, int], str]:
    """Text of every (case, size, batch): times as fast as the baseline with as many series, with range, and MB."""
    found = {}
    for size, document in documents.items():
        peaks = {(row["label"], row["batch"]): row["peak_bytes"] / 1e6 for row in document["rows"]}
        for ratio in document["ratios"]:
            case = next((key for key in NAMES if key.format(size) == ratio["label"]), None)
            if case is None:
                continue
            middle, most, least = (number(1 / ratio["seconds"][key]) for key in ("median", "min", "max"))
            text = middle if case == BASELINE else f"{middle}<br>{least}–{most}"
            found[case, size, ratio["batch"]] = f"{text} ({peaks[ratio['label'], ratio['batch']]:,.0f})"
    return found


def baseline_times(documents: dict[str, dict[str, Any]]) -> dict[tuple[str, int], str]:
    """Milliseconds per series of the baseline by (size, batch)."""
    return {
        (size, row["batch"]): f"{1000 * row['seconds']['median'] / row['batch']:,.0f}"
        for size, document in documents.items()
        for row in document["rows"]
        if row["label"] == BASELINE.format(size)
    }


def table(documents: dict[str, dict[str, Any]]) -> str:
    """Markdown: one row per case, one column per size and batch."""
    found = cells(documents)
    columns = sorted({key[1:] for key in found}, key=lambda one: (list(documents).index(one[0]), one[1]))
    lines = [
        "| | " + " | ".join(f"{size}, {batch}" for size, batch in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    times = baseline_times(documents)
    lines.append("| stock, float32: ms per series | " + " | ".join(times[column] for column in columns) + " |")
    for case, name in NAMES.items():
        row = [found.get((case, *column), "–") for column in columns]
        if any(one != "–" for one in row):
            lines.append(f"| {name} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def quick(case: str) -> bool:
    """True if a case takes much less time than the baseline."""
    return ":fast:" in case or "bolt-" in case


def joined(*results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Sizes of several results; of a size that several have, the rows together, with the baseline's of the first."""
    documents: dict[str, dict[str, Any]] = {}
    for result in results:
        for size, one in result["sizes"].items():
            first = documents.get(size, {"rows": [], "ratios": []})
            kept = {
                name: [
                    *first[name],
                    *(row for row in one[name] if not first[name] or row["label"] != BASELINE.format(size)),
                ]
                for name in ("rows", "ratios")
            }
            documents[size] = {**one, **first, **kept}
    return documents


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
        took = ratio["seconds"]
        roof = "   –" if row["achieved"] is None else f"{100 * row['achieved']:3.0f}%"
        print(
            f"{row['label']:36} batch {row['batch']:3} {1000 * row['seconds']['median']:9.1f} ms  "
            f"{took['median']:5.2f} ({took['min']:.2f}–{took['max']:.2f})  {row['peak_bytes'] / 1e6:6.0f} MB  "
            f"{row['tokens_per_second']:9.0f} tokens/s  roof {roof}",
            flush=True,
        )


def main() -> None:
    """Measure, print and save."""
    words = parser(__doc__, "tiny, batches 1 and 8, three rounds", rounds=None, threads=None)
    words.add_argument("--sizes", default="tiny,mini,small")
    words.add_argument("--batches", default="1,8,32")
    words.add_argument("--slow", action="store_true", help="what takes as long as the baseline, instead")
    options = words.parse_args()

    from rankscope.io import codec
    from rankscope_eval.bench import Settings, run_bench

    sizes = ["tiny"] if options.quick else options.sizes.split(",")
    batches = (1, 8) if options.quick else tuple(int(one) for one in options.batches.split(","))
    rounds = options.rounds or (3 if options.quick else 5)
    before, documents = conditions(), {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for size in sizes:
            cases = peers(folder, size)
            some = [one for one in cases if one == cases[0] or quick(one) != options.slow]
            settings = Settings(batches, rounds=rounds, threads=options.threads, together=not options.slow)
            documents[size] = short(codec.plain(run_bench(some, settings)), folder)
            show(documents[size])
    found = {**origin("runtime", *USED), "conditions": {"before": before, "after": conditions()}, "sizes": documents}
    save(found, options.out)


if __name__ == "__main__":
    main()
