"""Spectra during training are those of the weights at that step, whatever happens in between."""

import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from rankscope.errors import DataError, OptionError
from rankscope.train import callbacks, pretrain, spectra
from rankscope.train.config import Snapshots
from rankscope.train.models import new_model
from rankscope.train.rank_schedule import RankDesign
from rankscope.train.run_folder import seal
from rankscope.train.spectra import live_matrix, live_sites, read_spectra


def lapack(weight):
    return np.linalg.svd(weight.detach().double().numpy(), compute_uv=False)


@pytest.mark.parametrize("family", ["chronos-t5", "chronos-bolt"])
def test_first_and_last_spectra_are_those_of_the_fresh_and_the_saved_weights(family, tiny, tmp_path):
    config = tiny(family, spectra=Snapshots(steps=(0, 4), every=3, roles=("q", "o", "mlp", "embedding")))
    pretrain(config, tmp_path / "out", device="cpu")
    table = read_spectra(tmp_path / "out")
    assert list(table.columns) == ["step", "site", "stack", "layer", "role", "index", "sigma"]
    assert sorted(table["step"].unique()) == [0, 3, 4, 6]
    assert not table.duplicated(["step", "site", "index"]).any()
    torch.manual_seed(config.seed)
    fresh = dict(new_model(config).named_parameters())
    saved = load_file(tmp_path / "out" / "model.safetensors")
    roles = {"self.q", "self.o", "cross.q", "cross.o", "mlp_in", "mlp_out"}
    roles |= {"embedding"} if family == "chronos-t5" else {"patch_in", "patch_out", "patch_residual"}
    assert set(table["role"]) == roles
    for step, weights in ((0, fresh), (6, saved)):
        for site, rows in table[table["step"] == step].groupby("site"):
            expected = lapack(weights[site])
            assert list(rows["index"]) == list(range(len(expected)))
            np.testing.assert_allclose(rows["sigma"], expected, atol=1e-6 * expected[0])
    moved = table[(table["index"] == 0) & (table["role"] == "self.q")].groupby("step")["sigma"].first()
    assert moved.nunique() == 4


@pytest.mark.parametrize("layout", ["factored", "head-width"])
def test_matrices_of_a_low_rank_design_are_those_it_applies(layout, tiny):
    """Random inputs through the module are the second way to its matrix."""
    config = tiny("chronos-t5", low_rank=RankDesign(r0=2.0, alpha=0.0, layout=layout))
    model = new_model(config)
    for site in live_sites(config, model):
        matrix = live_matrix(model, site)
        dense = matrix if isinstance(matrix, torch.Tensor) else matrix.dense()
        module = model.get_submodule(site.module)
        with torch.no_grad():
            applied = module(torch.eye(dense.shape[1])).T
        torch.testing.assert_close(dense, applied, rtol=1e-5, atol=1e-7)


def test_a_factored_matrix_has_as_many_values_as_its_rank(tiny, tmp_path):
    design = RankDesign(r0=2.0, alpha=0.0, layout="factored", sketch="shared")
    config = tiny("chronos-bolt", low_rank=design, max_steps=2, spectra=Snapshots(steps=(2,), roles=("q",)))
    pretrain(config, tmp_path / "out", device="cpu")
    assert read_spectra(tmp_path / "out").groupby("site")["index"].max().eq(1).all()


@pytest.mark.slow
def test_logging_spectra_changes_no_weight(tiny, same_weights, tmp_path):
    pretrain(tiny(), tmp_path / "without", device="cpu")
    pretrain(tiny(spectra=Snapshots(every=1)), tmp_path / "with", device="cpu")
    assert same_weights(tmp_path / "without", tmp_path / "with")
    assert not (tmp_path / "without" / "spectra.parquet").exists()


@pytest.mark.slow
def test_beside_a_gpu_a_thread_writes_the_same_and_snapshots_wait_for_it(tiny, monkeypatch, tmp_path):
    """The thread is slow here; a sealed snapshot means that every spectrum before it is on disk."""
    config = tiny(max_steps=5, save_steps=2, spectra=Snapshots(every=1))
    pretrain(config, tmp_path / "at-once", device="cpu")
    sealed = {}

    def slow(matrix):
        time.sleep(0.02)
        return sigma(matrix)

    def look(folder, *args):
        sealed[int(folder.name[11:])] = len(list((folder.parent / "spectra").glob("*.parquet")))
        seal(folder, *args)

    sigma = spectra._sigma
    monkeypatch.setattr(spectra, "_device", lambda matrix: "cuda")
    monkeypatch.setattr(spectra, "_sigma", slow)
    monkeypatch.setattr(callbacks, "seal", look)
    pretrain(config, tmp_path / "threaded", device="cpu")
    assert sealed == {2: 3, 4: 5, 5: 6}
    assert read_spectra(tmp_path / "threaded").equals(read_spectra(tmp_path / "at-once"))


def test_spectra_of_a_run_that_is_not_done_can_be_read(tiny, tmp_path):
    seen = {}

    def look(done, total, what):
        if "loss" in what:
            seen[done] = read_spectra(tmp_path / "out.run")["step"].max()

    pretrain(tiny(spectra=Snapshots(every=2)), tmp_path / "out", device="cpu", progress=look)
    assert seen == {1: 0, 2: 2, 3: 2, 4: 4, 5: 4, 6: 6}


@pytest.mark.parametrize("place", ["spectra.parquet", "spectra/000000003.parquet"])
@pytest.mark.parametrize("damage", ["no table", "metadata", "other columns"])
def test_damaged_spectra_are_told_in_one_line(place, damage, tmp_path):
    file = tmp_path / place
    file.parent.mkdir(exist_ok=True)
    names = spectra.COLUMNS[:-1] if damage == "other columns" else spectra.COLUMNS
    metadata = {"pandas": "{"} if damage == "metadata" else None
    pq.write_table(pa.table({name: [1] for name in names}, metadata=metadata), file)
    if damage == "no table":
        file.write_bytes(b"{}")
    with pytest.raises(DataError, match=f"{place} holds no spectra") as caught:
        read_spectra(tmp_path)
    assert "\n" not in str(caught.value)


def test_nothing_to_read_and_unknown_roles_are_errors(tiny, tmp_path):
    with pytest.raises(DataError, match="spectra"):
        read_spectra(tmp_path)
    for wrong, named in (({"roles": ("w",)}, "'w'"), ({"every": -1}, "-1"), ({"steps": (3, -2)}, "-2")):
        with pytest.raises(OptionError, match=named):
            Snapshots(**wrong)
    with pytest.raises(OptionError, match="selects no matrix"):
        pretrain(tiny(spectra=Snapshots(steps=(0,), roles=("group",))), tmp_path / "out", device="cpu")
    assert not list(tmp_path.iterdir())
