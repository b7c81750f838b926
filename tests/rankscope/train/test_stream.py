"""Batches of generated and stored series: functions of seed and index, whoever makes them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate.data_loader import prepare_data_loader
from torch.utils.data import DataLoader, SequentialSampler

from rankscope.choices import SHARD_FORMATS
from rankscope.errors import DataError
from rankscope.train.config import ModelShape, PretrainConfig
from rankscope.train.data.mixture import Mixture
from rankscope.train.data.shard_writer import write_shards
from rankscope.train.data.shards import open_shards
from rankscope.train.data.synthesis import Synthesis
from rankscope.train.stream import SeriesStream

RAMPS = 40


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Shards of ramps that the user's file holds: series k is 1000 k, 1000 k + 1, …, 20 to 60 values long."""
    home = tmp_path_factory.mktemp("ramps")
    rows = [f"{k},{t},{1000 * k + t}" for k in range(1, RAMPS + 1) for t in range(60)]
    (home / "ramps.csv").write_text("item_id,time,value\n" + "\n".join(rows) + "\n")
    settings = {"files": (str(home / "ramps.csv"),), "file_share": 1.0, "min_length": 20, "shard_size": 30}
    for format_ in SHARD_FORMATS:
        write_shards(Synthesis("mixture", 70, 60, format=format_, **settings), home / format_, workers=1)
    return {format_: home / format_ for format_ in SHARD_FORMATS}


@pytest.fixture(params=["generated", *SHARD_FORMATS])
def config(request: pytest.FixtureRequest, folders: dict[str, Path]) -> PretrainConfig:
    """A run on each source of series."""
    return PretrainConfig(
        family="chronos-bolt",
        model=ModelShape(patch_size=8),
        context=32,
        horizon=8,
        bank_kernels=0,
        max_steps=6,
        batch_size=4,
        warmup_steps=1,
        shards="" if request.param == "generated" else str(folders[request.param]),
    )


def same(a: list[dict[str, torch.Tensor]], b: list[dict[str, torch.Tensor]]) -> bool:
    return len(a) == len(b) and all(
        torch.equal(x[key].nan_to_num(-7.0), y[key].nan_to_num(-7.0))
        for x, y in zip(a, b, strict=True)
        for key in ("context", "target")
    )


def test_batches_depend_on_seed_and_index_only(config: PretrainConfig) -> None:
    stream, again = SeriesStream(config, None), SeriesStream(config, None)
    later = stream.__getitems__([8, 9, 10, 11])
    first = again.__getitems__([0, 1, 2, 3])
    assert same(later, again.__getitems__([8, 9, 10, 11]))
    assert not same(later, first)
    other = SeriesStream(dataclasses.replace(config, seed=1), None)
    assert not same(first, other.__getitems__([0, 1, 2, 3]))


def loader(config: PretrainConfig, **settings: object) -> DataLoader:
    stream = SeriesStream(config, None)
    return DataLoader(stream, config.batch_size, sampler=SequentialSampler(stream), collate_fn=list, **settings)


def first_batches(batches: object, n: int) -> list[list[dict[str, torch.Tensor]]]:
    return [batch for batch, _ in zip(batches, range(n), strict=False)]  # type: ignore[call-overload]


@pytest.mark.slow
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_worker_processes_make_the_same_batches(config: PretrainConfig, start: str) -> None:
    wanted = first_batches(loader(config), 5)
    found = first_batches(loader(config, num_workers=2 if start == "fork" else 1, multiprocessing_context=start), 5)
    assert all(same(a, b) for a, b in zip(wanted, found, strict=True))


def test_two_processes_share_the_batches_of_one(config: PretrainConfig) -> None:
    alone = first_batches(loader(config), 6)
    shared = [
        prepare_data_loader(loader(config), num_processes=2, process_index=rank, put_on_device=False) for rank in (0, 1)
    ]
    ranks = [first_batches(batches, 3) for batches in shared]
    for step in range(3):
        assert same(ranks[0][step], alone[2 * step])
        assert same(ranks[1][step], alone[2 * step + 1])
    assert not any(same(a, b) for a in ranks[0] for b in ranks[1])


def test_windows_of_stored_series_are_whole_and_long_histories_are_full(folders: dict[str, Path]) -> None:
    plain = Mixture(short_share=0.0, missing_share=0.0)
    config = PretrainConfig(context=20, horizon=8, mixture=plain, shards=str(folders["arrow"]), bank_kernels=0)
    rows = SeriesStream(config, None).__getitems__(range(500))
    whole = torch.stack([torch.cat([row["context"], row["target"]]) for row in rows])
    assert whole.dtype == torch.float32
    pure = [row for row in whole if row[-1] >= 1000]  # 15 % are mixtures, which are scaled to 1
    seen = torch.stack(pure)
    steps = seen.diff(dim=1)
    assert ((steps == 1) | steps.isnan()).all()
    assert not seen[:, -16:].isnan().any()  # horizon and the shortest history, 8
    series = open_shards(folders["arrow"])
    lengths = {int(series.series(k)[-1]) // 1000: len(series.series(k)) for k in range(len(series))}
    assert min(lengths.values()) < 28
    assert len({int(row[-1]) // 1000 for row in pure}) > 20


def test_stored_histories_are_cut_and_punctured_like_generated_ones(folders: dict[str, Path]) -> None:
    def missing(**changes: float) -> torch.Tensor:
        config = PretrainConfig(
            context=12, horizon=8, mixture=Mixture(**changes), shards=str(folders["arrow"]), bank_kernels=0
        )
        return torch.stack([row["context"] for row in SeriesStream(config, None).__getitems__(range(400))]).isnan()

    assert not missing(short_share=0.0, missing_share=0.0, shortest=4).any()
    short = missing(short_share=1.0, missing_share=0.0, shortest=4)
    assert (short.int().diff(dim=1) <= 0).all()
    assert set((~short).sum(dim=1).tolist()) >= set(range(4, 12))
    punctured = missing(short_share=0.0, missing_share=1.0, shortest=4)
    assert 0.05 < punctured.float().mean() < 0.2
    assert not punctured[:, -1].any()


def test_series_too_short_for_the_horizon_are_refused(folders: dict[str, Path]) -> None:
    config = PretrainConfig(context=64, horizon=40, shards=str(folders["arrow"]))
    with pytest.raises(DataError, match=r"holds series of \d+ values: horizon 40 .* at least 48"):
        SeriesStream(config, None)


def test_missing_shards_and_unusable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a folder of shards"):
        SeriesStream(PretrainConfig(shards=str(tmp_path / "none")), None)
    (tmp_path / "few.csv").write_text("a\n" + "\n".join(str(t) for t in range(20)) + "\n")
    mixture = Mixture(files=(str(tmp_path / "few.csv"),), file_share=0.5)
    with pytest.raises(DataError, match=r"few.csv has no series .* fewer than 72 .*longest has 20"):
        SeriesStream(PretrainConfig(context=128, horizon=64, mixture=mixture), None)


def test_a_run_mixes_in_the_users_files(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("a\n" + "\n".join(str(5000 + t) for t in range(60)) + "\n")
    mixture = Mixture(0.0, 0.0, 0.0, missing_share=0.0, files=(str(tmp_path / "own.csv"),), file_share=0.5)
    rows = SeriesStream(PretrainConfig(context=16, horizon=8, mixture=mixture), None).__getitems__(range(100))
    own = sum(bool((row["target"].diff() == 1).all()) and float(row["target"][0]) >= 5000 for row in rows)
    assert 25 < own < 75


def test_missing_targets_teach_no_token(folders: dict[str, Path]) -> None:
    from rankscope.train.models import chronos_config
    from rankscope.train.stream import TokenCollator

    config = PretrainConfig(model=ModelShape(n_tokens=64), context=8, horizon=4)
    row = {"context": torch.arange(8.0), "target": torch.tensor([1.0, np.nan, 2.0, np.nan])}
    labels = TokenCollator(chronos_config(config))([row])["labels"][0]
    assert (labels == -100).tolist() == [False, True, False, True, False]
