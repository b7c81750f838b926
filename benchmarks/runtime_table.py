"""The table of README from the results of ``benchmarks/runtime.py``: times as fast as the stock pipeline (peak memory).

python benchmarks/runtime_table.py benchmarks/results/runtime-tiny-*.json benchmarks/results/runtime-mini-*.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

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
"""Cases of a size, in the order of the rows."""


def cells(documents: dict[str, dict[str, Any]]) -> dict[tuple[str, str, int], str]:
    """Text of every (case, size, batch): the ratio of seconds upside down, and of peak memory."""
    found = {}
    for size, document in documents.items():
        for ratio in document["ratios"]:
            case = next((key for key in NAMES if key.format(size) == ratio["label"]), None)
            if case is None:
                continue
            faster = 1 / ratio["seconds"]["median"]
            text = f"{faster:.1f}" if faster < 20 else f"{faster:.0f}"
            found[case, size, ratio["batch"]] = f"{text} ({ratio['peak_bytes']:.2f})"
    return found


def table(documents: dict[str, dict[str, Any]]) -> str:
    """Markdown: one row per case, one column per size and batch."""
    found = cells(documents)
    columns = sorted({key[1:] for key in found}, key=lambda one: (list(documents).index(one[0]), one[1]))
    lines = [
        "| | " + " | ".join(f"{size}, {batch}" for size, batch in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for case, name in NAMES.items():
        row = [found.get((case, *column), "–") for column in columns]
        if any(one != "–" for one in row):
            lines.append(f"| {name} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print the table of all sizes in the given files."""
    documents: dict[str, dict[str, Any]] = {}
    for file in sys.argv[1:]:
        documents |= json.loads(Path(file).read_text(encoding="utf-8"))["sizes"]
    print(table(documents))


if __name__ == "__main__":
    main()
