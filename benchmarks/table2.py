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
from provenance import conditions, origin, parser, save, work_folder


def main() -> None:
    """Run the verb and save."""
    words = parser(__doc__)
    words.add_argument("model")
    options, rest = words.parse_known_args()
    healed = HEALING if any("healed" in word for word in rest) else ()
    judged = tuple(f"eval/rankscope_eval/{name}" for name in ("tradeoff", "report.py", "verdict.py"))
    facts = origin("table2", *judged, *healed, *SCORING, *COMPRESSION, *bundled(options.model))
    before, folder = conditions(), work_folder(Path(f"table2-{options.model}"), facts)
    resume = ["--resume"] if folder.exists() else []
    subprocess.run(["rankscope", "table2", options.model, *rest, "--out", str(folder), *resume], check=True)
    document = json.loads((folder / "table2.json").read_text(encoding="utf-8"))
    save({**document, **facts, "conditions": {"before": before, "after": conditions()}}, options.out)


if __name__ == "__main__":
    main()
