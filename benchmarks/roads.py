"""Roads to small: every way of making a model smaller, at the same shares of all its parameters.

A road is a compression, and a healing of some. Each is taken with several seeds (of calibration and
healing), in floating point and in int8, scored on a suite against the original, and timed beside it in the fast
runtime. What a road cannot reach is recorded with the reason. Points are kept in ``--folder`` one by one, so that the
same command goes on where it was stopped; the result is written at the end.

    python benchmarks/roads.py bundled-bolt --suite dev.yaml --data DIR --out benchmarks/results/roads-bundled-bolt.json
    python benchmarks/roads.py bundled-bolt --quick     # two sizes, one seed, five series a set: half an hour
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accuracy import scored, sizes_of
from digests import COMPRESSION, HEALING, SCORING, bundled
from provenance import conditions, origin, parser, save, spread, suite_options

SIZES = (0.5, 0.25, 0.15, 0.1, 0.05)
STORAGES = ("float", "int8")
HEAL_STEPS = 600
BATCH = 32
"""Series of a healing's step."""
ROADS: dict[str, dict[str, Any]] = {
    "svd": {"method": "svd"},
    "whitened": {"method": "whitened"},
    "heads": {"sites": "attention"},
    "mlp": {"sites": "mlp"},
    "joint": {"method": "joint"},
    "stream": {"method": "stream"},
    "joint+stream": {"method": "joint+stream"},
    "joint+stream, of 16": {"method": "joint+stream", "multiple": 16},
    "joint, healed": {"method": "joint"},
    "joint+stream, healed": {"method": "joint+stream"},
}
"""Options of `rankscope compress` by road, beside the share of all parameters that is left."""
DECODER = "decoder depth"
"""Road whose sizes are numbers of decoder layers."""


@dataclass(frozen=True)
class Point:
    """A road to a size: a share of all parameters, or a number of decoder layers."""

    road: str
    size: float
    seed: int

    @property
    def name(self) -> str:
        """Name of its record."""
        return f"{self.road.replace(', ', '+').replace(' ', '-')}-{self.size:g}-{self.seed}"

    def options(self) -> dict[str, Any]:
        """Options of its compression."""
        from rankscope.compress import Budget

        if self.road == DECODER:
            return {"budget": Budget("layers", int(self.size)), "sites": "decoder"}
        return {"ratio": self.size, **ROADS[self.road]}


def points(layers: int, sizes: tuple[float, ...], seeds: int) -> Iterator[Point]:
    """All points; plain SVD looks at no data and is taken once."""
    for road in ROADS:
        for size in sizes:
            yield from (Point(road, size, seed) for seed in range(1 if road == "svd" else seeds))
    for kept in range(layers - 1, 0, -1):
        yield from (Point(DECODER, kept, seed) for seed in range(seeds))


def made(point: Point, options: argparse.Namespace, place: Path) -> tuple[Path, int]:
    """Folder of a point's model, and the series it was trained on."""
    from rankscope.compress import CompressOptions, compress
    from rankscope.compress.heal import HealConfig, heal

    how = point.options()
    if how.get("method") != "svd":
        how["calibration"] = options.calibration
    model = place / "small"
    compress(options.model, CompressOptions(**how, seed=point.seed), out=model)
    if not point.road.endswith("healed"):
        return model, 0
    heal(model, options.model, HealConfig(steps=options.heal_steps, seed=point.seed), out=place / "healed")
    return place / "healed", BATCH * options.heal_steps


def measured(point: Point, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Sizes, scores and times of a point in all storages, or the reason why it is out of reach."""
    from rankscope import open_checkpoint
    from rankscope.compress import CompressOptions, compress
    from rankscope.errors import FamilyError, OptionError

    place = folder / "work"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    record: dict[str, Any] = {"road": point.road, "size": point.size, "seed": point.seed}
    begun = time.perf_counter()
    try:
        model, trained = made(point, options, place)
    except (OptionError, FamilyError) as error:
        return {**record, "out_of_reach": str(error)}
    record |= {"seconds": time.perf_counter() - begun, "training_series": trained, "storages": {}}
    original = open_checkpoint(options.model)
    folders = {"float": model, "int8": place / "int8"}
    compress(model, CompressOptions(storage="int8"), out=folders["int8"])
    times = timed([str(folders[storage]) for storage in STORAGES], options)
    for storage in STORAGES:
        scores = scored(folders[storage], 0, options, folder / "rows")
        record["storages"][storage] = {
            **sizes_of(folders[storage], original),
            **times[str(folders[storage])],
            **scores["relative"]["all"],
            "worst": scores["worst"],
        }
    shutil.rmtree(place)
    return record


def timed(folders: list[str], options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Time and peak memory over the original's by batch, in the fast runtime, in alternating rounds."""
    from rankscope_eval.bench.case import Case, Settings
    from rankscope_eval.bench.running import run_bench

    settings = Settings(batches=(1, BATCH), rounds=options.rounds)
    original = Case(options.model, "fast")
    report = run_bench([original, *(Case(one, "fast") for one in folders)], settings, baseline=original)
    model = {row.label: row.model for row in report.rows}
    found: dict[str, dict[str, Any]] = {one: {"time": {}, "memory": {}} for one in folders}
    for ratio in report.ratios:
        if model[ratio.label] in found:
            one = found[model[ratio.label]]
            one["time"][f"{ratio.batch}"] = ratio.seconds.median
            one["memory"][f"{ratio.batch}"] = ratio.peak_bytes
    return found


def show(record: dict[str, Any]) -> str:
    """A point in one line."""
    head = f"{record['road']:22} {record['size']:<5g} seed {record['seed']}"
    if "out_of_reach" in record:
        return f"{head}  out of reach"
    one = record["storages"]["float"]
    return (
        f"{head}  {one['parameters']:.3f} of all parameters  WQL {one['WQL']:.3f}  MASE {one['MASE']:.3f}  "
        f"time {one['time'].get(str(BATCH), float('nan')):.2f}"
    )


def by_road(result: dict[str, Any], storage: str, key: str) -> dict[str, list[dict[str, Any]]]:
    """Points that were reached, by road from large to small: medians over the seeds of a number and of WQL."""
    found: dict[str, list[dict[str, Any]]] = {}
    groups: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for record in result["points"]:
        if "storages" in record:
            groups.setdefault((record["road"], record["size"]), []).append(record["storages"][storage])
    for (road, _), same in groups.items():
        at = [one["time"][str(BATCH)] if key == "time" else one[key] for one in same]
        found.setdefault(road, []).append({"at": spread(at)["median"], "WQL": spread([one["WQL"] for one in same])})
    return found


def draw(result: dict[str, Any], stem: Path) -> None:
    """WQL over the original's against the share of parameters and the share of time that are left."""
    from rankscope.plots.labels import plain_ticks
    from rankscope.plots.style import MARKS, figure, save_figure, styled

    titles = {"parameters": "share of all parameters", "time": f"share of the time, {BATCH} series"}
    with styled():
        fig, axes = figure(2, 1)
        for ax, (key, title) in zip(axes, titles.items(), strict=True):
            for position, (road, found) in enumerate(by_road(result, "float", key).items()):
                look = MARKS[position % len(MARKS)].kwargs()
                row = sorted(found, key=lambda one: one["at"])
                middle = [one["WQL"]["median"] for one in row]
                spans = [
                    [one["WQL"]["median"] - one["WQL"]["min"] for one in row],
                    [one["WQL"]["max"] - one["WQL"]["median"] for one in row],
                ]
                x = [one["at"] for one in row]
                ax.plot(x, middle, label=road, **look)
                ax.errorbar(x, middle, yerr=spans, fmt="none", ecolor=look["color"], elinewidth=0.7, capsize=2)
            ax.axhline(1.0, color="#d5dbe1", linewidth=0.6, zorder=0)
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_ylim(0.93, 2.0)  # plain SVD leaves the panel: what it costs is in the table
            plain_ticks(ax.xaxis, [0.05, 0.1, 0.2, 0.5, 1.0])
            plain_ticks(ax.yaxis, [1.0, 1.2, 1.5, 2.0])
            ax.set_xlabel(title)
            ax.set_ylabel("WQL / original")
        handles, labels = axes[0].get_legend_handles_labels()
        fig.legend(handles, labels, loc="outside lower center", ncols=3)
    save_figure(fig, stem)


def main() -> None:
    """Measure what is missing, and save."""
    words = parser(__doc__, "two sizes, one seed, five series of every task", seeds=3, rounds=5)
    words.add_argument("model", help="a bundled one")
    words.add_argument("--folder", type=Path, help="where points are kept (default: roads-MODEL)")
    words.add_argument("--figure", type=Path, metavar="PREFIX", help="figure to draw, PREFIX.png and PREFIX.svg")
    suite_options(words)
    words.add_argument("--max-series", type=int, help="of every task")
    words.add_argument("--calibration", default="mixture:1024")
    words.add_argument("--heal-steps", type=int, default=HEAL_STEPS)
    options = words.parse_args()
    sizes = SIZES
    if options.quick:
        options.seeds, options.rounds, options.heal_steps, sizes = 1, 3, 100, (0.25, 0.1)
        options.max_series, options.calibration = options.max_series or 5, "mixture:256"

    from rankscope import open_checkpoint
    from rankscope.compress.calibration import fingerprint
    from rankscope.io.run_store import RunStore

    original, before = open_checkpoint(options.model), conditions()
    folder = options.folder or Path(f"roads-{options.model}")
    used = ("benchmarks/accuracy.py", "benchmarks/scores.py", "eval/rankscope_eval/bench")
    facts = origin("roads", *used, *HEALING, *SCORING, *COMPRESSION, *bundled(options.model))
    settings = {
        "weights": fingerprint(original),
        "used": facts["used"],
        "suite": options.suite,
        **{name: getattr(options, name) for name in ("max_series", "calibration", "heal_steps", "rounds")},
    }
    store = RunStore(folder, "a study", "rankscope/roads@1", settings, items="points", owns=("work", "rows"))
    layers = int(original.config.get("num_decoder_layers") or original.config["num_layers"])
    wanted = list(points(layers, sizes, options.seeds))
    with store.open(resume=folder.exists()):
        missing, begun = [point for point in wanted if point.name not in store], time.monotonic()
        for done, point in enumerate(missing, 1):
            record = measured(point, options, folder)
            store.put(point.name, record)
            left = (time.monotonic() - begun) / done * (len(missing) - done) / 60
            print(f"[{done}/{len(missing)}, {left:.0f} min left] {show(record)}", flush=True)
        records = [json.loads(store.path(point.name).read_text(encoding="utf-8")) for point in wanted]
    result = {
        **facts,
        "conditions": {"before": before, "after": conditions()},
        "model": options.model,
        "suite": Path(options.suite).name,
        **{name: getattr(options, name) for name in ("max_series", "calibration", "heal_steps", "rounds", "seeds")},
        "points": records,
    }
    if options.figure is not None:
        draw(result, options.figure)
    save(result, options.out)


if __name__ == "__main__":
    main()
