"""ε-ranks of the attention matrices of a trained model, beside those of its random start.

python benchmarks/ranks.py bundled-bolt --out benchmarks/results/ranks-bundled-bolt.json
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from digests import bundled
from provenance import origin, parser, save

EPS = 0.1
USED = tuple(
    f"src/rankscope/{name}" for name in ("measure/spectrum.py", "numerics", "train/starts.py", "train/models.py")
)


def ranks(checkpoint: Any) -> dict[str, Any]:
    """ε-ranks and largest singular values by stack and role, each a list over the layers."""
    from rankscope import measure_spectrum

    found: dict[str, Any] = {}
    for row in measure_spectrum(checkpoint, eps=(EPS,)).to_frame().to_dict("records"):
        place = found.setdefault(row["stack"], {}).setdefault(row["role"], {"rank": [], "largest": []})
        place["rank"].append(int(row[f"eps_rank@{EPS}"]))
        place["largest"].append(float(row["sigma_max"]))
    for roles in found.values():
        for role in roles.values():
            role.update(least=min(role["rank"]), most=max(role["rank"]))
    return found


def main() -> None:
    """Measure, print and save."""
    words = parser(__doc__)
    words.add_argument("model")
    options = words.parse_args()

    import torch

    import rankscope
    from rankscope import train
    from rankscope.train.models import new_model

    config = train.read_config(Path(train.__file__).parent / "configs" / f"{options.model}.yaml")
    torch.manual_seed(config.seed)
    with tempfile.TemporaryDirectory() as place:
        new_model(config).save_pretrained(place)
        start = ranks(rankscope.open_checkpoint(place))
    trained = ranks(rankscope.open_checkpoint(options.model))
    for stack, roles in trained.items():
        for role, one in roles.items():
            print(f"{stack} {role}: {one['rank']} (start: {start[stack][role]['rank']})")
    result = {
        **origin("ranks", *USED, f"src/rankscope/train/configs/{options.model}.yaml", *bundled(options.model)),
        "model": options.model,
        "eps": EPS,
        "start": start,
        "trained": trained,
    }
    save(result, options.out)


if __name__ == "__main__":
    main()
