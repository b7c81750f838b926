"""Initial networks: those that the runs began with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from rankscope import measure_spectrum, open_checkpoint
from rankscope.errors import DataError
from rankscope.io import codec
from rankscope.measure.sweep import SweepReport, SweepRow, measure_point
from rankscope.train import pretrain
from rankscope.train.config import EmbeddingStart, Snapshots
from rankscope.train.initial import initial_checkpoint, initial_checkpoints, initial_sweep
from rankscope.train.proxies import ProxyOptions, train_proxy

CARRIED = Path(__file__).parents[3] / "figures/rankscope_paper/figures/data/spectra.parquet"


@pytest.mark.parametrize("start", ["published", "recency", "ordered"])
def test_spectra_are_those_logged_before_the_first_step(tiny: Any, tmp_path: Path, start: str) -> None:
    config = tiny(spectra=Snapshots(steps=(0,), roles=("q",)), seed=3)
    config = codec.parse(
        type(config), codec.plain(config) | {"model": codec.plain(config.model) | {"start": start}}, ""
    )
    pretrain(config, tmp_path / "run", device="cpu")
    logged = pd.read_parquet(tmp_path / "run" / "spectra.parquet")
    torch.manual_seed(99)
    before = torch.random.get_rng_state()
    initial = initial_checkpoint(open_checkpoint(tmp_path / "run"), tmp_path / "initial")
    assert torch.equal(torch.random.get_rng_state(), before)
    for site in initial.sites("q"):
        mine = np.linalg.svd(initial.tensor(site.name).double().numpy(), compute_uv=False)
        theirs = logged[logged["site"] == site.name].sort_values("index")["sigma"]
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_a_proxy_starts_where_its_first_loss_was_measured(tmp_path: Path) -> None:
    """Trained at a learning rate of nearly nothing, it is still its initial network."""
    options = ProxyOptions(steps=1, batch_size=2, learning_rate=1e-12, seed=4)
    for family in ("patchtst", "time-moe"):
        train_proxy(family, tmp_path / family, options=options)
        trained = open_checkpoint(tmp_path / family)
        initial = initial_checkpoint(trained, tmp_path / f"{family} initial")
        for site in trained.sites("all"):
            torch.testing.assert_close(initial.tensor(site.name), trained.tensor(site.name), rtol=2e-3, atol=1e-4)


def test_a_proxy_starts_at_its_own_width_and_depth(tmp_path: Path) -> None:
    options = ProxyOptions(steps=1, batch_size=2, learning_rate=1e-12, seed=4, width=32, layers=1)
    train_proxy("patchtst", tmp_path / "small", options=options)
    trained = open_checkpoint(tmp_path / "small")
    initial = initial_checkpoint(trained, tmp_path / "initial")
    for site in trained.sites("all"):
        torch.testing.assert_close(initial.tensor(site.name), trained.tensor(site.name), rtol=2e-3, atol=1e-4)
    record = tmp_path / "small" / "standin.json"
    earlier = {name: value for name, value in codec.load(record).items() if name not in ("width", "layers")}
    record.write_text(json.dumps(earlier))
    with pytest.raises(DataError, match=r"has other shapes than the network that its standin\.json tells of"):
        initial_checkpoint(trained, tmp_path / "another")


def test_a_text_proxy_needs_no_text(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("It was the best of times, it was the worst of times. " * 400)
    train_proxy(
        "t5",
        tmp_path / "t5",
        options=ProxyOptions(steps=1, batch_size=2, learning_rate=1e-12, seed=4, text=text, width=16, layers=1),
    )
    trained = open_checkpoint(tmp_path / "t5")
    text.unlink()
    initial = initial_checkpoint(trained, tmp_path / "initial")
    torch.testing.assert_close(initial.tensor("shared.weight"), trained.tensor("shared.weight"), rtol=2e-3, atol=1e-4)


def test_a_checkpoint_without_a_record_has_no_start(bolt_folder: Path, tmp_path: Path) -> None:
    plain = open_checkpoint(bolt_folder)
    with pytest.raises(DataError, match=r"has neither pretrain\.json nor standin\.json"):
        initial_checkpoint(plain, tmp_path / "initial")
    with initial_checkpoints([plain]) as found:
        assert not found


def test_sweeps_before_training(tiny: Any, tmp_path: Path) -> None:
    run = codec.plain(tiny(seed=2))
    pretrain(tiny(seed=2), tmp_path / "run", device="cpu")
    trained = measure_point(open_checkpoint(tmp_path / "run"), (0.1,))
    rows = (
        SweepRow("a", {}, run, "done", ranks=trained),
        SweepRow("b", {}, {"family": "chronos-bolt", "model": {}}, "done", ranks=trained),
    )
    (row,) = initial_sweep(SweepReport("toy", "", "", (0.1,), rows)).points
    initial = initial_checkpoint(open_checkpoint(tmp_path / "run"), tmp_path / "initial")
    expected = [one.eps_ranks["0.1"] for one in measure_spectrum(initial, (0.1,), ("q", "encoder")).sites]
    assert row.ranks is not None
    assert row.ranks.layer_ranks["encoder.self"]["0.1"] == expected


def test_points_that_inherit_start_with_the_embedding_of_their_point(tiny: Any, tmp_path: Path) -> None:
    pretrain(tiny(), tmp_path / "points" / "base", device="cpu")
    config = tiny(seed=2, embedding=EmbeddingStart("inherit", "@base"))
    ranks = measure_point(open_checkpoint(tmp_path / "points" / "base"), (0.1,))
    rows = (SweepRow("heir", {}, codec.plain(config), "done", ranks=ranks),)
    assert [row.point for row in initial_sweep(SweepReport("toy", "", str(tmp_path), (0.1,), rows)).points] == ["heir"]


def test_the_carried_spectra_are_those_of_the_bundled_model() -> None:
    """Fig. 13 shows the run that it names: its last step is the bundled checkpoint."""
    frame = pd.read_parquet(CARRIED)
    last = frame[frame["step"] == frame["step"].max()]
    for row in measure_spectrum(open_checkpoint("bundled"), (0.1,), ("q",)).sites:
        logged = last[last["site"] == row.site.name].sort_values("index")["sigma"].to_numpy()
        np.testing.assert_allclose(row.sigma, logged, atol=1e-3 * logged[0])  # bundled in half precision
