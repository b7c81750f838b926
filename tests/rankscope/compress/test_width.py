"""Feed-forward blocks of another width: what a block then does, against what was promised and against the original."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rankscope import load_pipeline, open_checkpoint
from rankscope.checkpoints import Checkpoint
from rankscope.compress import Budget, CompressOptions, compress, plan, width
from rankscope.compress.apply import write_folder
from rankscope.compress.calibration import Calibration, CalibrationSet, calibrate, calibration_set
from rankscope.compress.calibration.passes import pass_inputs
from rankscope.compress.prepare import Prepared, prepare
from rankscope.compress.width import RIDGE, WidthCut, positive
from rankscope.errors import CheckpointError, DataError
from rankscope.families import Width
from rankscope.numerics import FactoredMatrix

KINDS = ("chronos-t5", "chronos-bolt", "chronos-2", "t5", "t5-gated")
MLP = ("mlp", "embedding")
"""The blocks of the stacks, and the one that embeds patches."""
Toy = Callable[[str], tuple[Checkpoint, Calibration, CalibrationSet]]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory, write_checkpoint: Any, tiny_config: Any) -> Toy:
    """``toy("t5")``: a random model, its moments, and the series that they are of."""
    made: dict[str, tuple[Checkpoint, Calibration, CalibrationSet]] = {}

    def get(kind: str) -> tuple[Checkpoint, Calibration, CalibrationSet]:
        if kind not in made:
            deep = {} if kind == "chronos-2" else {"num_decoder_layers": 2}
            folder = write_checkpoint(tmp_path_factory.mktemp(kind) / kind, tiny_config(kind, **deep))
            checkpoint = open_checkpoint(folder)
            tokens = torch.randint(2, 60, (64, 28), generator=torch.Generator().manual_seed(1)).float()
            texts = CalibrationSet("texts", tokens[:, :20], tokens[:, 20:])
            series = texts if kind.startswith("t5") else calibration_set("kernelsynth:128", context=32, horizon=8)
            sites = tuple(site for site in checkpoint.sites(["all"]) if site.role != "embedding")
            made[kind] = checkpoint, calibrate(checkpoint, series, sites=sites, batch_size=len(series)), series
        return made[kind]

    return get


def prepared_for(toy: Toy, kind: str, **changes: Any) -> Prepared:
    checkpoint, moments, _ = toy(kind)
    how = {"sites": MLP, "method": "joint", "allocation": "energy", "calibration": moments, **changes}
    return prepare(checkpoint, CompressOptions(**how, refine=False))


def cuts_of(prepared: Prepared) -> list[WidthCut]:
    return [cut for cut in prepared.cuts if isinstance(cut, WidthCut)]


def hidden_of(toy: Toy, kind: str, cuts: list[WidthCut]) -> dict[str, Tensor]:
    """What enters the outer matrix of every block while the calibration set passes, (positions, units)."""
    checkpoint, _, series = toy(kind)
    module: Any = checkpoint.module()
    seen: dict[str, Tensor] = {}
    handles = [
        module.get_submodule(cut.outer.module).register_forward_pre_hook(
            lambda _, args, name=cut.module: seen.update({name: args[0].detach().flatten(0, -2).double()})
        )
        for cut in cuts
    ]
    with torch.no_grad():
        module(**pass_inputs(module, checkpoint.family, series.context, series.future))
    for handle in handles:
        handle.remove()
    return seen


def errors(toy: Toy, kind: str, prepared: Prepared, share: float, folder: Path) -> list[tuple[float, float]]:
    """Of every block that became narrower: promised and measured mean squared error of its outputs, in shares."""
    found = []
    write_folder(prepared, prepared.by_budget(Budget("attention-ratio", share)), folder)
    small = open_checkpoint(folder)
    hidden = hidden_of(toy, kind, cuts_of(prepared))
    for cut, spectra in zip(prepared.cuts, prepared.spectra, strict=True):
        layout = small.layouts.get(cut.module)
        if not isinstance(layout, Width) or not isinstance(cut, WidthCut):
            continue
        w, w_small = (one.tensor(cut.outer.name).double() for one in (toy(kind)[0], small))
        rows = [one.tensor(cut.inner[0].name) for one in (toy(kind)[0], small)]
        kept = [int((rows[0] == row).all(dim=1).nonzero()) for row in rows[1]]
        h = hidden[cut.module]
        whole = (h @ w.mT).square().sum()
        measured = (h @ w.mT - h[:, kept] @ w_small.mT).square().sum() / whole
        squares = spectra[0].values.square()
        found.append((float(squares[layout.units :].sum() / squares.sum()), float(measured)))
    return found


def unlike(found: list[tuple[float, float]]) -> bool:
    return any(abs(promised - measured) > 0.02 * promised + 1e-6 for promised, measured in found)


@pytest.mark.parametrize("kind", KINDS)
def test_the_error_is_the_promised_one(kind: str, toy: Toy, tmp_path: Path) -> None:
    """Measured on what really enters the blocks, with the weights that were written: the sum of the terms cut off."""
    sites = MLP if kind != "chronos-2" else ("mlp",)  # its patches of the future are calibrated on, as padding is not
    found = errors(toy, kind, prepared_for(toy, kind, sites=sites), 0.6, tmp_path / "small")
    assert len(found) >= 1
    assert not unlike(found), found


def shuffled(second: Tensor, outputs: Tensor, block: int = 0) -> Tensor:
    return torch.randperm(len(second), generator=torch.Generator().manual_seed(0))


def unfitted(w: Tensor, second: Tensor, order: Tensor, units: int) -> Tensor:
    return w.double()[:, order[:units]]


def test_a_wrong_covariance_a_dropped_refit_and_a_shuffled_importance_are_found_out(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = "chronos-bolt"
    right = errors(toy, kind, prepared_for(toy, kind), 0.6, tmp_path / "right")
    assert not unlike(right)
    with monkeypatch.context() as broken:
        broken.setattr(width, "positive", lambda second: positive(second).roll((1, 1), (0, 1)))
        assert unlike(errors(toy, kind, prepared_for(toy, kind), 0.6, tmp_path / "covariance"))
    with monkeypatch.context() as broken:
        broken.setattr(width, "refit", unfitted)
        assert unlike(errors(toy, kind, prepared_for(toy, kind), 0.6, tmp_path / "refit"))
    with monkeypatch.context() as broken:
        broken.setattr(width, "elimination_order", shuffled)
        at_random = errors(toy, kind, prepared_for(toy, kind), 0.6, tmp_path / "order")
    assert sum(measured for _, measured in at_random) > 1.5 * sum(measured for _, measured in right)


@pytest.mark.parametrize("kind", KINDS)
def test_full_width_keeps_every_bit(kind: str, toy: Toy, tmp_path: Path) -> None:
    checkpoint, moments, _ = toy(kind)
    how = CompressOptions(attention_ratio=1.0, sites=MLP, method="joint", calibration=moments, allocation="energy")
    report = compress(checkpoint, how, out=tmp_path / "same")
    same = open_checkpoint(tmp_path / "same")
    assert not same.layouts
    assert report.selected_ratio == 1.0
    assert all(torch.equal(same.tensor(name), checkpoint.tensor(name)) for name in checkpoint.index)


@pytest.mark.parametrize("kind", KINDS)
def test_all_units_in_another_order_are_the_same_block(kind: str, toy: Toy) -> None:
    """The refit of all units is the matrix itself, to rounding."""
    prepared = prepared_for(toy, kind)
    for cut, spectra in zip(prepared.cuts, prepared.spectra, strict=True):
        if isinstance(cut, WidthCut):
            matrices = {site: prepared.source.matrix(site) for site in cut.sites}
            plans = [plan.SitePlan(spectra[0], spectra[0].rank_now, 0, True)]
            made = cut.tensors(matrices, plans)
            torch.testing.assert_close(made[cut.outer.name].float(), matrices[cut.outer], rtol=1e-5, atol=1e-6)
            assert all(torch.equal(made[site.name], matrices[site]) for site in cut.inner)


def dense_twin(small: Checkpoint, big: Checkpoint, folder: Path, write_checkpoint: Any) -> Checkpoint:
    """A stock checkpoint of the original shapes whose blocks have zeros where units are gone."""
    tensors = {name: small.tensor(name) for name in small.index}
    for site in small.sites(["all"]):
        matrix = small.matrix(site)
        if isinstance(matrix, FactoredMatrix):
            tensors |= {site.name: matrix.dense(), f"{site.module}.bias": tensors[f"{site.module}.up.bias"]}
    tensors = {name: tensors[name] for name in big.index}
    for name, info in big.index.items():
        missing = [was - now for now, was in zip(tensors[name].shape, info.shape, strict=True)]
        tensors[name] = nn.functional.pad(tensors[name], [side for more in reversed(missing) for side in (0, more)])
    return open_checkpoint(write_checkpoint(folder, big.config, tensors))


def answer(checkpoint: Checkpoint) -> Tensor:
    module = checkpoint.module()
    with torch.no_grad():
        if checkpoint.family.decoding == "tokens":
            tokens = torch.randint(2, 60, (3, 12), generator=torch.Generator().manual_seed(5))
            return module(input_ids=tokens, decoder_input_ids=tokens[:, :6]).logits
        context = torch.randn(3, 32, generator=torch.Generator().manual_seed(5)).cumsum(dim=1)
        return module(context=context).quantile_preds


@pytest.mark.parametrize("kind", KINDS)
def test_a_narrow_block_answers_as_one_with_silent_units(
    kind: str, toy: Toy, tmp_path: Path, write_checkpoint: Any
) -> None:
    """Dense, narrower linear layers and nothing else; the config says how wide, and nothing is padded."""
    prepared = prepared_for(toy, kind)
    report = write_folder(prepared, prepared.by_budget(Budget("attention-ratio", 0.5)), tmp_path / "small")
    small = open_checkpoint(tmp_path / "small")
    block = json.loads((tmp_path / "small" / "config.json").read_text())["rankscope"]["sites"]
    widths = {name: entry["units"] for name, entry in block.items() if entry["layout"] == "width"}
    assert widths
    module = small.module()
    for site in small.sites(["all"]):
        if site.block in widths and site.hidden_axis is not None:
            layer = module.get_submodule(site.module)
            assert type(layer) is nn.Linear
            assert layer.weight.shape[site.hidden_axis] == widths[site.block] == small.shape(site)[site.hidden_axis]
            assert small.layout(site) == "width"
    assert (
        small.parameters
        == report.parameters["after"]
        == sum(p.numel() for p in {id(p): p for p in module.parameters()}.values())
    )
    twin = dense_twin(small, prepared.source, tmp_path / "twin", write_checkpoint)
    torch.testing.assert_close(answer(small), answer(twin), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["chronos-t5", "chronos-bolt"])
def test_the_fast_runtime_forecasts_as_plain_chronos_does(kind: str, toy: Toy, tmp_path: Path) -> None:
    import chronos

    prepared = prepared_for(toy, kind, sites=("attention", "mlp"))
    write_folder(prepared, prepared.by_budget(Budget("attention-ratio", 0.5)), tmp_path / "small")
    context = [torch.arange(9.0), torch.sin(torch.arange(24.0))]
    stock = chronos.BaseChronosPipeline.from_pretrained(str(tmp_path / "small"), device_map="cpu")
    fast = load_pipeline(tmp_path / "small", runtime="fast")
    if kind == "chronos-bolt":
        pairs = [p.predict(context, prediction_length=6) for p in (stock, fast)]
        torch.testing.assert_close(pairs[0], pairs[1], rtol=1e-4, atol=1e-4)
    else:
        greedy = [p.predict(context, prediction_length=6, num_samples=1, top_k=1) for p in (stock, fast)]
        torch.testing.assert_close(greedy[0], greedy[1], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_narrow_block_can_be_cut_again_by_any_method(toy: Toy, tmp_path: Path) -> None:
    """To fewer units, to factors, to whole numbers; a block with a factored matrix is whitened from then on."""
    prepared = prepared_for(toy, "chronos-bolt")
    write_folder(prepared, prepared.by_budget(Budget("attention-ratio", 0.6)), tmp_path / "first")
    first = open_checkpoint(tmp_path / "first")
    _, _, series = toy("chronos-bolt")
    how: dict[str, Any] = {"sites": MLP, "calibration": series, "attention_ratio": 0.6}
    again = compress(first, CompressOptions(**how, method="joint", allocation="energy"), out=tmp_path / "second")
    assert again.parameters["after"] < first.parameters
    factored = compress(first, CompressOptions(**how, method="whitened"), out=tmp_path / "third")
    assert {site.layout for site in factored.sites} >= {"factored"}
    third = open_checkpoint(tmp_path / "third")
    assert answer(third).isfinite().all()
    compress(
        third,
        CompressOptions(**{**how, "attention_ratio": 0.9}, method="joint", allocation="energy"),
        out=tmp_path / "4",
    )
    assert answer(open_checkpoint(tmp_path / "4")).isfinite().all()
    compress(first, CompressOptions(storage="int8"), out=tmp_path / "int8")
    whole = open_checkpoint(tmp_path / "int8")
    assert whole.layouts == first.layouts
    assert float((answer(whole) - answer(first)).abs().max() / answer(first).abs().max()) < 0.05


def test_worth_is_what_a_probe_loses_without_the_unit(toy: Toy) -> None:
    """On one scale with heads: gates of the terms of a block, squared gradients, never rising."""
    prepared = prepared_for(
        toy, "chronos-bolt", sites=("attention", "mlp"), allocation="sensitivity", probe="kernelsynth:8"
    )
    for spectra in prepared.spectra:
        for one in spectra:
            assert one.worth is not None
            assert bool((one.worth >= 0).all())
            assert bool((one.worth.diff() <= 0).all())
    kinds = {one.layout for one in prepared.by_budget(Budget("attention-ratio", 0.4)).sites}
    assert kinds == {"head-width", "width"}


@pytest.mark.parametrize("noise", [0.0, 1e-5, 1e-4])
def test_a_moment_that_rounding_made_indefinite_is_mended_as_little_as_it_takes(noise: float) -> None:
    """Rounding of float32 sums is a share of the loudest direction, which may be a million times the quietest."""
    rows = torch.randn(50, 20, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    loud = rows * 1e3 ** torch.linspace(0, -1, 20, dtype=torch.float64)
    exact = loud.mT @ loud / 50
    rounding = rows[:20] + rows[:20].mT
    second = exact + noise * exact.max() * rounding / torch.linalg.matrix_norm(rounding, 2)
    assert (float(torch.linalg.eigvalsh(second)[0]) > 0) == (noise == 0.0)
    mended = positive(second)
    assert float(torch.linalg.eigvalsh(mended)[0]) > 0
    added = float((mended - second).diagonal().max() / second.diagonal().mean())
    assert added <= max(RIDGE, 10 * noise * float(exact.max() / exact.diagonal().mean())) * (1 + 1e-9)


def test_nothing_is_left_of_a_moment_that_is_none() -> None:
    with pytest.raises(DataError, match="calibrate again"):
        positive(-torch.eye(3, dtype=torch.float64))
    assert torch.equal(positive(torch.zeros(3, 3, dtype=torch.float64)).diagonal().sign(), torch.ones(3))


def test_fewer_positions_than_units_are_reported(toy: Toy, tmp_path: Path) -> None:
    checkpoint, _, _ = toy("chronos-bolt")
    few = calibration_set("kernelsynth:3", context=32, horizon=8)
    how = CompressOptions(attention_ratio=0.5, sites="mlp", method="joint", allocation="energy", calibration=few)
    report = compress(checkpoint, how, out=tmp_path / "small")
    assert "fewer positions than they have ranks" in report.notes[0]


def test_a_width_of_no_block_is_refused(toy: Toy, tmp_path: Path) -> None:
    checkpoint, _, _ = toy("chronos-bolt")
    folder = tmp_path / "bad"
    shutil.copytree(checkpoint.folder, folder)
    config = {**checkpoint.config, "rankscope": {"version": 1, "family": "chronos-bolt", "sites": {}}}
    mlp = "encoder.block.0.layer.1.DenseReluDense"
    for module, message in (("encoder.block.0", "not a feed-forward block"), (mlp, "implies")):
        config["rankscope"]["sites"] = {module: {"layout": "width", "units": 3}}
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(CheckpointError, match=message):
            open_checkpoint(folder)
    config["rankscope"]["sites"] = {mlp: {"layout": "width", "units": 0}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"units of .* ≥ 1, found 0"):
        open_checkpoint(folder)
