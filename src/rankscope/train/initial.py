"""Initial networks of trained checkpoints, rebuilt from the seed and the settings that training recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.engine.randomness import seeded
from rankscope.errors import DataError, RankscopeError
from rankscope.io import codec
from rankscope.measure.sweep import SweepReport, measure_point
from rankscope.train.config import PretrainConfig, config_from_dict, recorded_config
from rankscope.train.models import new_model
from rankscope.train.proxies import PROXIES, ProxyOptions
from rankscope.train.proxies.recipe import save_pretrained
from rankscope.train.sweeps.points import inheriting


def initial_network(config: PretrainConfig) -> Any:
    """Build the network that a run of ``config`` starts from; torch's generator is left as it was."""
    with seeded(config.seed):
        return new_model(config)


def initial_checkpoint(trained: Checkpoint, folder: Path) -> Checkpoint:
    """Write the network that ``trained`` started from into a folder, and open it.

    The draw is that of the training run where torch and the kind of machine are the same.

    Args:
        trained: written by ``rankscope pretrain`` or ``rankscope standin``.
        folder: new folder.

    Raises:
        DataError: the checkpoint records no training, or the record is damaged.
        RankscopeError: the network cannot be rebuilt, e.g. since the checkpoint that it inherits from is gone.
    """
    record = Path(trained.folder) / "pretrain.json"
    proxy = Path(trained.folder) / "standin.json"
    if record.is_file():
        initial_network(recorded_config(record)).save_pretrained(str(folder))
    elif proxy.is_file():
        _write_proxy(trained, _options(proxy), folder)
        initial = open_checkpoint(folder)
        shapes, made = ({name: info.shape for name, info in one.index.items()} for one in (trained, initial))
        if shapes != made:
            raise DataError(
                f"{trained.source} has other shapes than the network that its standin.json tells of, as where an "
                "earlier release was given --width or --layers: train it anew."
            )
        return initial
    else:
        raise DataError(f"{trained.source} has neither pretrain.json nor standin.json: its start is not known.")
    return open_checkpoint(folder)


def _options(record: Path) -> ProxyOptions:
    seed = codec.part(record, "seed")
    if type(seed) is not int or not 0 <= seed < 2**63:
        raise DataError(f"{record}: seed is {seed!r}: it must be a whole number from 0 to 2**63 - 1.")
    sizes = {name: codec.load(record).get(name) for name in ("width", "layers")}
    values = {"seed": seed, **{name: size for name, size in sizes.items() if size is not None}}
    options: ProxyOptions = codec.build(ProxyOptions, values, where=str(record), error=DataError)
    return options


def _write_proxy(trained: Checkpoint, options: ProxyOptions, folder: Path) -> None:
    proxy = PROXIES.get(trained.family.name)
    if proxy is None:
        raise DataError(f"{trained.source} has a standin.json, and no small models of {trained.family.title} are made.")
    module: Any = trained.module() if proxy.reads_text else None
    folder.mkdir(parents=True)
    with seeded(options.seed):
        if module is not None:  # the text serves the tokenizer alone, whose size is in the config
            save_pretrained(type(module)(module.config), folder)
        else:
            recipe = proxy.make(options, proxy.batch_size)
            recipe.save(recipe.model, folder)


@contextmanager
def initial_checkpoints(trained: Sequence[Checkpoint]) -> Iterator[dict[str, Checkpoint]]:
    """Initial networks by the source of the trained ones, in a temporary folder; without those that have none."""
    with TemporaryDirectory() as place:
        found = {}
        for position, one in enumerate(trained):
            try:
                found[one.source] = initial_checkpoint(one, Path(place) / str(position))
            except RankscopeError:
                continue
        yield found


def initial_sweep(report: SweepReport) -> SweepReport:
    """The finished points of a sweep with the ranks of their initial networks; without those that cannot be rebuilt."""
    rows = []
    for row in report.done:
        if "max_steps" not in row.config:  # a finished checkpoint, not a run
            continue
        with TemporaryDirectory() as place:
            try:
                config = inheriting(config_from_dict(row.config), Path(report.folder))
                initial_network(config).save_pretrained(place)
            except RankscopeError:
                continue
            rows.append(replace(row, ranks=measure_point(open_checkpoint(place), report.eps), scores={}))
    return replace(report, points=tuple(rows))
