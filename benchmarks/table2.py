"""Table 2 of a model: runs `rankscope table2` and saves its document with where it comes from.

Options that are not listed go to the verb. It works in ``table2-MODEL/`` and goes on there where it was stopped.

    python benchmarks/table2.py bundled-bolt --methods svd,joint --suite backtest.yaml --data DIR \
        --out figures/rankscope_paper/figures/data/table2_bundled-bolt.json
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from digests import COMPRESSION, HEALING, SCORING, bundled
from provenance import conditions, origin, parser, save


def main() -> None:
    """Run the verb and save."""
    words = parser(__doc__)
    words.add_argument("model")
    words.add_argument("--methods", required=True)
    words.add_argument("--energy", action="store_true", help="also joint with ranks by energy")
    options, rest = words.parse_known_args()
    before, folder = conditions(), Path(f"table2-{options.model}")
    passes = [["--methods", options.methods], *([["--methods", "joint", "--allocations", "energy"]] * options.energy)]
    for grid in passes:
        resume = ["--resume"] if folder.exists() else []
        command = ["rankscope", "table2", options.model, *rest, *grid, "--out", str(folder), *resume]
        subprocess.run(command, check=True)
    document = json.loads((folder / "table2.json").read_text(encoding="utf-8"))
    healed = HEALING if any("healed" in row["method"] for row in document["rows"]) else ()
    used = ("eval/rankscope_eval/tradeoff", *healed, *SCORING, *COMPRESSION)
    made = origin("table2", *used, *bundled(options.model))
    save({**document, **made, "conditions": {"before": before, "after": conditions()}}, options.out)


if __name__ == "__main__":
    main()
