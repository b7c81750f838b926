"""Loss of the answers of models compressed by `joint`, by how ranks are allotted, on series that it never saw.

Squared changes of the quantiles in units of the series' spread, or the mean KL divergence of the next token from the
original's, as `rankscope compress` estimates them.

    python benchmarks/losses.py bundled-bolt --out benchmarks/results/losses-bundled-bolt.json
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from digests import COMPRESSION, bundled
from provenance import conditions, origin, parser, save

from rankscope.choices import Allocation

RATIOS = (0.25, 0.15, 0.1, 0.075)
ALLOCATIONS: tuple[Allocation, ...] = ("energy", "sensitivity")
SEED = 20_011
"""Of the series; calibration and probe draw with others."""
BATCH = 16


def loss(original: Any, small: Any, series: Any) -> float:
    """Mean loss of a compressed model's answers."""
    import torch

    from rankscope.compress.calibration.passes import answer, gives_quantiles, questions
    from rankscope.compress.sensitivity import unit_of

    exact, other = original.module().eval(), small.module().eval()
    total, count = 0.0, 0
    with torch.inference_mode():
        for inputs, _ in questions(original, exact, series, BATCH):
            want, found = answer(exact, inputs), answer(other, inputs)
            if gives_quantiles(inputs):
                each = ((found - want).double() / unit_of(want)) ** 2
            else:
                logs = want.double().log_softmax(dim=-1)
                each = (logs.exp() * (logs - found.double().log_softmax(dim=-1))).sum(dim=-1)
                each = each[inputs["decoder_attention_mask"] > 0] if "decoder_attention_mask" in inputs else each
            total, count = total + float(each.sum()), count + each.numel()
    return total / count


def main() -> None:
    """Compress, measure, print and save."""
    words = parser(__doc__, series=64)
    words.add_argument("model")
    options = words.parse_args()

    from rankscope import open_checkpoint
    from rankscope.compress import CompressOptions, compress
    from rankscope.compress.calibration import calibration_set

    before, original = conditions(), open_checkpoint(options.model)
    config: Any = original.module().config
    chronos = config.chronos_config
    series = calibration_set(
        f"mixture:{options.series}", context=chronos["context_length"], horizon=chronos["prediction_length"], seed=SEED
    )
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as place:
        for ratio in RATIOS:
            for allocation in ALLOCATIONS:
                folder = Path(place) / f"{allocation}-{ratio}"
                how = CompressOptions(attention_ratio=ratio, method="joint", allocation=allocation)
                compress(original, how, out=folder)
                found.setdefault(f"{ratio:g}", {})[allocation] = loss(original, open_checkpoint(folder), series)
            print(f"{ratio:6}  " + "  ".join(f"{name} {value:.4f}" for name, value in found[f"{ratio:g}"].items()))
    result = {
        **origin("losses", *COMPRESSION, "src/rankscope/lowrank", *bundled(options.model)),
        "conditions": {"before": before, "after": conditions()},
        "model": options.model,
        "series": options.series,
        "losses": found,
    }
    save(result, options.out)


if __name__ == "__main__":
    main()
