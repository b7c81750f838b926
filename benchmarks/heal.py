"""Accuracy of a compressed model before and after healing, over that of the original.

python benchmarks/heal.py --suite backtest.yaml --data DIR --out benchmarks/results/heal-bundled-bolt.json
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from accuracy import scored
from digests import COMPRESSION, SCORING, bundled
from provenance import conditions, origin, parser, save, suite_options


def main() -> None:
    """Compress, heal, score both and save."""
    words = parser(__doc__, steps=400)
    words.add_argument("--model", default="bundled-bolt")
    words.add_argument("--ratio", type=float, default=0.075)
    suite_options(words)
    words.add_argument("--max-series", type=int, help="of every task")
    options = words.parse_args()

    from rankscope.compress import CompressOptions, compress
    from rankscope.compress.heal import HealConfig, heal
    from rankscope.io import codec

    before = conditions()
    with tempfile.TemporaryDirectory() as place:
        small, healed = Path(place) / "small", Path(place) / "healed"
        compress(options.model, CompressOptions(method="joint", attention_ratio=options.ratio), out=small)
        report = codec.plain(heal(small, options.model, HealConfig(steps=options.steps), out=healed))
        folders = {"compressed": small, "healed": healed}
        forms = {name: scored(folder, 0, options, Path(place) / "rows") for name, folder in folders.items()}
    for name, form in forms.items():
        whole = form["relative"]["all"]
        print(f"{name:12} MASE {whole['MASE']:.3f}  WQL {whole['WQL']:.3f}")
    used = ("benchmarks/accuracy.py", "benchmarks/scores.py", "src/rankscope/train/passes.py")
    result = {
        **origin("heal", *used, *SCORING, *COMPRESSION, *bundled(options.model)),
        "conditions": {"before": before, "after": conditions()},
        "model": options.model,
        "ratio": options.ratio,
        "suite": Path(options.suite).name,
        "heal": {name: report[name] for name in ("loss", "steps", "seconds", "first_loss", "last_loss", "options")},
        **forms,
    }
    save(result, options.out)


if __name__ == "__main__":
    main()
