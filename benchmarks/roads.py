"""Roads to small: every way of making a model smaller, at the same shares of all its parameters.

A road is a compression, and a healing of some. Each is taken with several seeds (of calibration and healing), in
floating point and in int8, scored on a suite against the original, and with the first seed timed beside it, in the fast
runtime or, where the family has none, in the stock pipeline. What a road cannot reach is recorded with the reason.
``--out`` is written after every point, and the same command goes on where it was stopped.

    python benchmarks/roads.py bundled-bolt --suite dev.yaml --data DIR --out benchmarks/results/roads-bundled-bolt.json
    python benchmarks/roads.py bundled-bolt --quick     # two sizes, one seed, five series a set: half an hour
"""

from __future__ import annotations

import argparse
import math
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from accuracy import scored, sizes_of, times_over
from digests import COMPRESSION, HEALING, SCORING, bundled
from provenance import conditions, earlier, machine, origin, parser, save, suite_options

CONFIGS = Path(__file__).resolve().parents[1] / "src/rankscope/train/configs"
STORAGES = ("float", "int8")
HEAL_STEPS = 600
BATCH = 32
"""Series of a step of training."""
WHOLE = (0.5, 0.25, 0.15, 0.1, 0.05)


@dataclass(frozen=True)
class Road:
    """A way of making a model smaller.

    Attributes:
        options: of `rankscope compress`, beside the size; None for a model of that size from scratch.
        sizes: shares of all parameters, or numbers of decoder layers.
        healed: trained against the original afterwards.
    """

    options: dict[str, Any] | None = field(default_factory=dict)
    sizes: tuple[float, ...] = WHOLE
    healed: bool = False


ROADS = {
    "svd": Road({"method": "svd"}),
    "heads": Road({"method": "joint", "sites": "attention"}, (0.85, 0.75)),
    "MLP width": Road({"method": "joint", "sites": "mlp"}, (0.75, 0.6)),
    "joint": Road({"method": "joint"}),
    "stream": Road({"method": "stream"}),
    "joint+stream": Road({"method": "joint+stream"}),
    "joint+stream of 16": Road({"method": "joint+stream", "multiple": 16}, (0.25, 0.15)),
    "decoder depth": Road({"sites": "decoder"}, (3, 2, 1)),
    "healed": Road({"method": "joint+stream"}, (0.15, 0.1, 0.05), healed=True),
    "from scratch": Road(None, (0.15, 0.1, 0.05)),
}
"""Roads by name: the paper's truncated SVD, narrower heads, narrower feed-forward blocks, both, narrower residual
streams, everything under one budget, the same in widths that are multiples of 16, fewer decoder layers, and two that
train: everything under one budget healed, and its control."""
FIXED = ("svd", "decoder depth")
"""Roads whose seed changes little or nothing: taken once."""


@dataclass(frozen=True)
class Point:
    """A road to a size with a seed."""

    road: str
    size: float
    seed: int

    def options(self) -> dict[str, Any]:
        """Options of its compression."""
        from rankscope.compress import Budget

        given = ROADS[self.road].options or {}
        if self.size >= 1:
            return {"budget": Budget("layers", int(self.size)), **given}
        return {"ratio": self.size, **given}


def points(layers: int, seeds: int, sizes: tuple[float, ...] = ()) -> Iterator[Point]:
    """All points, a seed after the other, so that a study that is stopped has all roads; ``sizes`` alone, if given."""
    for seed in range(seeds):
        for name, road in ROADS.items():
            for size in road.sizes:
                if (seed == 0 or name not in FIXED) and size < max(1, layers) and (not sizes or size in sizes):
                    yield Point(name, size, seed)


def made(point: Point, options: argparse.Namespace, place: Path) -> tuple[Path, int]:
    """Folder of a point's model, and the series it was trained on."""
    from rankscope.compress import CompressOptions, compress
    from rankscope.compress.heal import HealConfig, heal

    model, trained = place / "small", BATCH * options.heal_steps
    if ROADS[point.road].options is None:
        from_scratch(point, options, model)
        return model, trained
    how = point.options()
    if how.get("method") != "svd":
        how["calibration"] = options.calibration
    compress(options.model, CompressOptions(**how, seed=point.seed), out=model)
    if not ROADS[point.road].healed:
        return model, 0
    heal(model, options.model, HealConfig(steps=options.heal_steps, seed=point.seed), out=place / "healed")
    return place / "healed", trained


def from_scratch(point: Point, options: argparse.Namespace, out: Path) -> None:
    """Train the widest model of the original's form and dtype within the size, on as many series as a healing."""
    import torch

    from rankscope import open_checkpoint
    from rankscope.compress import CompressOptions, compress
    from rankscope.train import pretrain, read_config
    from rankscope.train.models import new_model

    recipe, steps = read_config(CONFIGS / f"{options.model}.yaml"), options.heal_steps
    most = point.size * open_checkpoint(options.model).parameters
    run: dict[str, Any] = {
        "max_steps": steps,
        "warmup_steps": steps // 20,
        "decay_steps": steps // 4,
        "batch_size": BATCH,
    }
    bank: dict[str, Any] = {"bank_kernels": 300, "mixture": replace(recipe.mixture, curriculum=0)}
    quiet: dict[str, Any] = {"spectra": replace(recipe.spectra, steps=()), "precision": "auto"}
    for width in range(recipe.model.d_model, 0, -4):
        heads = max(1, round(recipe.model.num_heads * width / recipe.model.d_model))
        shape = replace(recipe.model, d_model=width, d_ff=4 * width, num_heads=heads)
        config = replace(recipe, model=shape, seed=point.seed, **run, **bank, **quiet)
        with torch.device("meta"):
            size = sum(one.numel() for one in new_model(config).parameters())
        if size <= most:
            break
    trained = out.with_name("trained")
    pretrain(config, trained, device="cpu")
    compress(trained, CompressOptions(dtype=open_checkpoint(options.model).dtype), out=out)


def measured(point: Point, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Sizes, scores and times of a point in all storages, or the reason why it is out of reach."""
    from rankscope import open_checkpoint
    from rankscope.compress import CompressOptions, compress
    from rankscope.errors import FamilyError, OptionError

    place = folder / "work"
    place.mkdir()
    record: dict[str, Any] = {"road": point.road, "size": point.size, "seed": point.seed, "machine": machine()}
    begun = time.perf_counter()
    try:
        model, trained = made(point, options, place)
    except (OptionError, FamilyError) as error:
        shutil.rmtree(place)
        return {**record, "out_of_reach": str(error)}
    record |= {"seconds": time.perf_counter() - begun, "training_series": trained, "storages": {}}
    original = open_checkpoint(options.model)
    folders = {"float": model, "int8": place / "int8"}
    compress(model, CompressOptions(storage="int8"), out=folders["int8"])
    times = {}
    if point.seed == 0:  # seeds change shapes by a few rows
        times = times_over([*folders.values()], options.model, (1, BATCH), options.rounds)
    for storage in STORAGES:
        scores = scored(folders[storage], 0, options, folder / "rows")
        record["storages"][storage] = {
            **sizes_of(folders[storage], original),
            **scores["relative"]["all"],
            "worst": scores["worst"],
        }
        if timed := times.get(str(folders[storage])):
            medians = {batch: one["median"] for batch, one in timed["time"].items()}
            record["storages"][storage] |= {"memory": timed["memory"], "time": medians}
    shutil.rmtree(place)
    return record


def show(record: dict[str, Any]) -> str:
    """A point in one line."""
    head = f"{record['road']:18} {record['size']:<5g} seed {record['seed']}"
    if "out_of_reach" in record:
        return f"{head}  out of reach"
    one = record["storages"]["float"]
    time = f"  time {one['time'][str(BATCH)]:.2f}" if "time" in one else ""
    return f"{head}  {one['parameters']:.3f} of all parameters  WQL {one['WQL']:.3f}  MASE {one['MASE']:.3f}{time}"


def main() -> None:
    """Measure what is missing, and save after every point."""
    words = parser(__doc__, "two sizes, one seed, five series of every task", seeds=3, rounds=5)
    words.add_argument("model", help="a bundled one")
    suite_options(words)
    words.add_argument("--max-series", type=int, help="of every task")
    words.add_argument("--calibration", default="mixture:1024")
    words.add_argument("--heal-steps", type=int, default=HEAL_STEPS)
    words.add_argument("--minutes", type=float, default=math.inf, help="begin no point after these")
    options = words.parse_args()
    sizes: tuple[float, ...] = ()
    if options.quick:
        options.seeds, options.rounds, options.heal_steps, sizes = 1, 3, 100, (0.25, 0.15)
        options.max_series, options.calibration = options.max_series or 5, "mixture:256"

    from rankscope import open_checkpoint

    original = open_checkpoint(options.model)
    used = (
        *(f"benchmarks/{one}.py" for one in ("accuracy", "scores")),
        "src/rankscope/train",
        "eval/rankscope_eval/bench",
    )
    facts = origin("roads", *used, *HEALING, *SCORING, *COMPRESSION, *bundled(options.model))
    settings = {"model": options.model, "suite": Path(options.suite).name}
    settings |= {name: getattr(options, name) for name in ("max_series", "calibration", "heal_steps", "rounds")}
    records = list(earlier(options.out, {**facts, **settings}, *settings).get("points", []))
    before = conditions()
    done = {(one["road"], one["size"], one["seed"]) for one in records}
    decoder = {site.layer for site in original.sites("all") if site.stack == "decoder" and site.layer is not None}
    wanted = list(points(len(decoder), options.seeds, sizes))
    missing, begun = [one for one in wanted if (one.road, one.size, one.seed) not in done], time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        for at, point in enumerate(missing, 1):
            record = measured(point, options, Path(place))
            records.append(record)
            minutes = (time.monotonic() - begun) / 60
            left = minutes / at * (len(missing) - at)
            print(f"[{at}/{len(missing)}, {left:.0f} min left] {show(record)}", flush=True)
            missed = len(missing) - at
            held = {"before": before, "after": conditions()}
            save({**facts, "conditions": held, **settings, "missing": missed, "points": records}, options.out)
            if minutes > options.minutes:
                break


if __name__ == "__main__":
    main()
