"""Data-aware methods on whole folders: exact where they must be, inside every budget, and compressible again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from rankscope import load_pipeline, open_checkpoint
from rankscope.checkpoints import Checkpoint
from rankscope.compress import Budget, CompressOptions, Plan, compress
from rankscope.compress.apply import write_folder
from rankscope.compress.calibration import Calibration, calibrate, calibration_set
from rankscope.compress.plan import site_plan
from rankscope.compress.prepare import prepare, read_matrices
from rankscope.errors import OptionError
from rankscope.families import HeadWidth
from rankscope.numerics import FactoredMatrix, symmetric_root

JOINT = ("chronos-t5", "chronos-bolt", "t5")
Toys = Callable[[str], tuple[Checkpoint, Calibration]]


def answer(model: Checkpoint | Path) -> Tensor:
    """Logits or quantiles on fixed inputs, in float32."""
    checkpoint = model if isinstance(model, Checkpoint) else open_checkpoint(model)
    module = checkpoint.module()
    with torch.no_grad():
        if checkpoint.family.name in ("chronos-t5", "t5"):
            tokens = torch.randint(2, 62, (3, 12), generator=torch.Generator().manual_seed(5))
            return module(input_ids=tokens, decoder_input_ids=tokens[:, :6]).logits
        context = torch.randn(3, 32, generator=torch.Generator().manual_seed(5)).cumsum(dim=1)
        return module(context=context).quantile_preds


def forecasts(folder: Path) -> Tensor:
    """Through chronos-forecasting's own entry point."""
    import chronos

    pipeline = chronos.BaseChronosPipeline.from_pretrained(str(folder), device_map="cpu")
    torch.manual_seed(7)
    return torch.stack(list(pipeline.predict([torch.arange(9.0), torch.sin(torch.arange(24.0))], prediction_length=6)))


@pytest.mark.parametrize("kind", JOINT)
def test_ratio_one_keeps_every_bit(kind: str, toys: Toys, tmp_path: Path) -> None:
    checkpoint, moments = toys(kind)
    report = compress(
        checkpoint, CompressOptions(attention_ratio=1.0, method="joint", calibration=moments), out=tmp_path / "same"
    )
    same = open_checkpoint(tmp_path / "same")
    assert same.index.keys() == checkpoint.index.keys()
    assert all(torch.equal(same.tensor(name), checkpoint.tensor(name)) for name in checkpoint.index)
    assert not same.layouts
    assert report.selected_ratio == 1.0
    assert {(site.layout, site.rank, site.widths) for site in report.sites} == {("dense", 8, (4, 4))}
    assert torch.equal(answer(same), answer(checkpoint))


def all_terms(checkpoint: Checkpoint, moments: Calibration, folder: Path, write_checkpoint: Any) -> Path:
    """A dense checkpoint of the same shapes whose heads are their decompositions with every term kept."""
    prepared = prepare(
        checkpoint,
        CompressOptions(method="joint", sites="attention", allocation="energy", calibration=moments, refine=False),
    )
    tensors = {name: checkpoint.tensor(name).float() for name in checkpoint.index}
    for cut, spectra in zip(prepared.cuts, prepared.spectra, strict=True):
        plans = [replace(site_plan(one, one.rank_now), changed=True) for one in spectra]
        made = cut.tensors(read_matrices(checkpoint, cut), plans)
        assert made.keys() == {site.name for site in cut.sites}
        tensors |= {name: tensor.float() for name, tensor in made.items()}
    config = {key: value for key, value in checkpoint.config.items() if key not in ("dtype", "torch_dtype")}
    return write_checkpoint(folder, config, tensors)


@pytest.mark.parametrize("kind", JOINT)
def test_all_terms_of_every_head_reproduce_the_model(
    kind: str, toys: Toys, tmp_path: Path, write_checkpoint: Any
) -> None:
    checkpoint, moments = toys(kind)
    folder = all_terms(checkpoint, moments, tmp_path / "all", write_checkpoint)
    name = checkpoint.sites()[0].name
    assert not torch.allclose(open_checkpoint(folder).tensor(name), checkpoint.tensor(name), rtol=1e-2)
    assert float((answer(folder) - answer(checkpoint)).abs().max()) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bundled", "bundled-bolt"])
def test_all_terms_of_a_trained_model_reproduce_it(name: str, tmp_path: Path, write_checkpoint: Any) -> None:
    """Trained heads, from moments of few series: what they did not show must come back, too."""
    checkpoint = open_checkpoint(name)
    moments = calibrate(checkpoint, calibration_set("mixture:6", context=128, horizon=16), batch_size=6)
    folder = all_terms(checkpoint, moments, tmp_path / "all", write_checkpoint)
    exact, found = answer(checkpoint), answer(folder)
    assert float((found - exact).abs().max()) < 1e-4 * max(1.0, float(exact.abs().max()))


@pytest.mark.parametrize("kind", JOINT)
def test_heads_are_worth_what_they_contribute_in_the_stated_norm(kind: str, toys: Toys) -> None:
    """Root mean square of scores over queries and keys within a series, and of outputs over what is attended to."""
    checkpoint, moments = toys(kind)
    prepared = prepare(
        checkpoint,
        CompressOptions(method="joint", sites="attention", allocation="energy", calibration=moments, refine=False),
    )
    sites = {site.module: site for site in checkpoint.sites()}
    for one in prepared.flat:
        rows = slice(4 * one.head, 4 * one.head + 4)
        q, k, v, o = (sites[f"{one.name}.{letter}"] for letter in "qkvo")
        if one.pair == "qk":
            left = checkpoint.tensor(q.name)[rows].double() @ symmetric_root(moments.of(q).second)[0]
            right = checkpoint.tensor(k.name)[rows].double() @ symmetric_root(moments.of(k).within)[0]
            seen = left.T @ right
        else:
            assert moments.of(v) is moments.of(k)
            attended = moments.of(o).second[rows, rows]
            seen = checkpoint.tensor(o.name)[:, rows].double() @ symmetric_root(attended)[0]
        exact = torch.linalg.svdvals(seen)[:4]
        torch.testing.assert_close(one.values, exact, rtol=1e-2, atol=2e-3 * float(exact[0]))


@pytest.mark.parametrize("kind", JOINT)
def test_every_head_one_below_full(kind: str, toys: Toys, tmp_path: Path) -> None:
    checkpoint, moments = toys(kind)
    prepared = prepare(
        checkpoint,
        CompressOptions(method="joint", sites="attention", allocation="energy", calibration=moments, refine=False),
    )
    plan = Plan(None, tuple(site_plan(one, 3) for one in prepared.flat), "energy")
    report = write_folder(prepared, plan, tmp_path / "small")
    small = open_checkpoint(tmp_path / "small")
    assert {site.widths for site in report.sites} == {(3, 3)}
    assert set(small.layouts.values()) == {HeadWidth((3, 3), (3, 3))}
    assert small.parameters == report.parameters["after"] < checkpoint.parameters
    assert {name: info.shape for name, info in small.index.items() if name.endswith("SelfAttention.o.weight")} == {
        name: (16, 6) for name in checkpoint.index if name.endswith("SelfAttention.o.weight")
    }
    exact, near = answer(checkpoint), answer(small)
    worse = replace(plan, sites=tuple(site_plan(one, 1) for one in prepared.flat))
    write_folder(prepared, worse, tmp_path / "worse")
    assert float((near - exact).norm()) < float((answer(tmp_path / "worse") - exact).norm())
    assert {site.lost for site in report.sites} != {0.0}


def test_a_head_that_is_not_cut_keeps_its_bits_beside_one_that_is(toys: Toys, tmp_path: Path) -> None:
    checkpoint, moments = toys("chronos-t5")
    prepared = prepare(
        checkpoint,
        CompressOptions(method="joint", sites="attention", allocation="energy", calibration=moments, refine=False),
    )
    sites = tuple(site_plan(one, 2 if one.head == 0 else 4) for one in prepared.flat)
    write_folder(prepared, Plan(None, sites, "energy"), tmp_path / "small")
    small = open_checkpoint(tmp_path / "small")
    assert {site.head_widths for site in small.sites()} == {(2, 4)}
    for site in small.sites():
        kept, stored = (
            c.tensor(site.name).narrow(site.head_axis or 0, at, 4) for c, at in ((checkpoint, 4), (small, 2))
        )
        assert torch.equal(kept, stored), site.name


@pytest.mark.parametrize("kind", JOINT)
def test_unlike_widths_answer_as_their_products_do(
    kind: str, toys: Toys, tmp_path: Path, write_checkpoint: Any
) -> None:
    """The folder against a stock model whose heads are filled up with zeros to the stock width."""
    checkpoint, moments = toys(kind)
    prepared = prepare(
        checkpoint,
        CompressOptions(method="joint", sites="attention", allocation="energy", calibration=moments, refine=False),
    )
    sites = tuple(site_plan(one, 1 + index % 4) for index, one in enumerate(prepared.flat))
    write_folder(prepared, Plan(None, sites, "energy"), tmp_path / "small")
    small = open_checkpoint(tmp_path / "small")
    tensors = {name: checkpoint.tensor(name) for name in checkpoint.index}
    for site in small.sites():
        parts = small.tensor(site.name).split(site.head_widths, dim=site.head_axis)
        wide = [torch.zeros(4, 16) if site.head_axis == 0 else torch.zeros(16, 4) for _ in parts]
        for target, part in zip(wide, parts, strict=True):
            target[tuple(slice(size) for size in part.shape)] = part
        tensors[site.name] = torch.cat(wide, dim=site.head_axis)
    dense = write_checkpoint(tmp_path / "dense", checkpoint.config, tensors)
    torch.testing.assert_close(answer(small), answer(dense), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(answer(dense), answer(checkpoint), rtol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["chronos-t5", "chronos-bolt"])
def test_compressed_folders_load_forecast_and_compress_again(kind: str, toys: Toys, tmp_path: Path) -> None:
    source, moments = toys(kind)
    small: dict[str, Any] = {"calibration": f"kernelsynth:{24}"}
    first = compress(
        source, CompressOptions(attention_ratio=0.8, method="joint", calibration=moments), out=tmp_path / "a"
    )
    chain = [
        ("a", "b", "joint", "head-width"),  # heads to narrower heads
        ("b", "c", "svd", "factored"),  # and these into factors
        ("c", "d", "whitened", "factored"),  # which are cut further
    ]
    before = first
    for start, end, method, layout in chain:
        again = compress(
            tmp_path / start, CompressOptions(attention_ratio=0.75, method=method, **small), out=tmp_path / end
        )
        assert again.parameters["before"] == before.parameters["after"]
        assert again.selected_ratio <= 0.75
        assert layout in {site.layout for site in again.sites}
        written = open_checkpoint(tmp_path / end)
        assert written.parameters == again.parameters["after"] < again.parameters["before"]
        for site in again.sites:
            assert written.layout(next(s for s in written.sites() if s.name == site.name)) == site.layout
        assert bool(torch.isfinite(forecasts(tmp_path / end)).all())
        before = again
    with pytest.raises(OptionError, match="is stored in two factors, method joint cuts whole heads"):
        compress(tmp_path / "d", CompressOptions(attention_ratio=0.5, method="joint", **small), out=tmp_path / "e")


def test_cutting_nothing_more_keeps_narrow_heads_bit_for_bit(toys: Toys, tmp_path: Path) -> None:
    source, moments = toys("chronos-bolt")
    compress(source, CompressOptions(attention_ratio=0.6, method="joint", calibration=moments), out=tmp_path / "a")
    report = compress(
        tmp_path / "a",
        CompressOptions(attention_ratio=1.0, method="joint", calibration="kernelsynth:4"),
        out=tmp_path / "b",
    )
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert (report.selected_ratio, {site.layout for site in report.sites}) == (1.0, {"head-width"})
    configs = [json.loads((tmp_path / name / "config.json").read_text()) for name in "ab"]
    assert configs[0]["rankscope"]["sites"] == configs[1]["rankscope"]["sites"]


@pytest.mark.parametrize("method", ["whitened", "theorem3", "asvd", "random"])
@pytest.mark.parametrize("kind", [*JOINT, "chronos-2"])
def test_other_methods_on_every_family_and_site(kind: str, method: str, toys: Toys, tmp_path: Path) -> None:
    source, moments = toys(kind)
    report = compress(
        source,
        CompressOptions(attention_ratio=0.6, method=method, calibration=moments, sites="all", seed=3),
        out=tmp_path / "small",
    )
    small = open_checkpoint(tmp_path / "small")
    assert small.parameters == report.parameters["after"] < source.parameters
    assert report.selected_ratio <= 0.6
    assert (report.method, report.calibration is None) == (method, method == "random")
    assert {site.layout for site in report.sites} <= {"dense", "factored"}
    for entry in report.sites:
        site = next(s for s in small.sites(["all"]) if s.name == entry.name)
        matrix = small.matrix(site)
        assert isinstance(matrix, FactoredMatrix) == (entry.layout == "factored")
        if isinstance(matrix, FactoredMatrix):
            assert matrix.rank == entry.rank
    assert bool(torch.isfinite(answer(small)).all())


def test_joint_cuts_heads_and_blocks(toys: Toys, tmp_path: Path) -> None:
    source, moments = toys("chronos-t5")
    sites = ["attention", "mlp"]
    report = compress(
        source,
        CompressOptions(attention_ratio=0.5, method="joint", calibration=moments, sites=sites),
        out=tmp_path / "small",
    )
    layouts = {(site.role.startswith("mlp"), site.layout) for site in report.sites}
    assert (True, "width") in layouts
    assert (False, "head-width") in layouts
    assert bool(torch.isfinite(forecasts(tmp_path / "small")).all())


def test_one_pair_of_one_stack_alone(toys: Toys, tmp_path: Path) -> None:
    source, moments = toys("chronos-t5")
    report = compress(
        source,
        CompressOptions(
            attention_ratio=0.5, method="joint", calibration=moments, sites="q,k,decoder,cross", refine=False
        ),
        out=tmp_path / "small",
    )
    assert {(site.stack, site.role) for site in report.sites} == {("decoder", "cross.q"), ("decoder", "cross.k")}
    small = open_checkpoint(tmp_path / "small")
    cut = {name for name in source.index if not torch.equal(small_or(small, name), source.tensor(name))}
    assert cut == {site.name for site in report.sites}
    assert {layout.vo for layout in small.layouts.values() if isinstance(layout, HeadWidth)} == {(4, 4)}


def small_or(checkpoint: Checkpoint, name: str) -> Tensor:
    return checkpoint.tensor(name)


@pytest.mark.parametrize(
    ("kind", "options", "error", "message"),
    [
        ("chronos-t5", {"sites": "q"}, OptionError, "cuts q and k of a head together"),
        ("chronos-t5", {"sites": "q,k,o"}, OptionError, "cuts v and o of a head together"),
        (
            "chronos-t5",
            {"attention_ratio": None, "eps": 0.1, "allocation": "energy"},
            OptionError,
            "eps is one tolerance",
        ),
        ("chronos-t5", {"attention_ratio": 0.01}, OptionError, "ratio 0.01 is out of reach: .* gives 0.25"),
        ("chronos-t5", {"multiple": 0}, OptionError, "multiple 0 is not usable"),
        ("chronos-t5", {"allocation": "even"}, OptionError, "allocation 'even' is not known"),
        (
            "chronos-t5",
            {"attention_ratio": None, "budget": Budget("bytes", 1000)},
            OptionError,
            "bytes 1000 is out of reach",
        ),
        (
            "chronos-t5",
            {"attention_ratio": None, "budget": Budget("cache-bytes", 9), "sites": "encoder"},
            OptionError,
            "decoder",
        ),
        (
            "chronos-t5",
            {"method": "whitened", "sites": "mlp,q", "calibration": "half"},
            OptionError,
            "holds no moments",
        ),
    ],
)
@pytest.mark.usefixtures("untyped")
def test_what_cannot_be_done_is_refused_before_anything_is_written(
    kind: str, options: dict[str, Any], error: type[Exception], message: str, toys: Toys, tmp_path: Path
) -> None:
    source, moments = toys(kind)
    if options.get("calibration") == "half":
        kept = {name: one for name, one in moments.streams.items() if "DenseReluDense" not in name}
        moments = replace(moments, streams=kept)
    given = {"method": "joint", "attention_ratio": 0.5, **options, "calibration": moments}
    with pytest.raises(error, match=message) as caught:
        compress(source, CompressOptions(**given), out=tmp_path / "small")
    assert "\n" not in str(caught.value)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("method", ["joint", "whitened"])
def test_multiples_of_eight(method: str, tmp_path: Path, write_checkpoint: Any, tiny_config: Any) -> None:
    config = tiny_config("chronos-bolt", num_decoder_layers=2, d_kv=24, d_model=48)
    source = open_checkpoint(write_checkpoint(tmp_path / "model", config))
    report = compress(
        source,
        CompressOptions(attention_ratio=0.6, method=method, calibration="kernelsynth:24", multiple=8),
        out=tmp_path / "small",
    )
    ranks = {width for site in report.sites if site.layout != "dense" for width in site.widths or (site.rank,)}
    assert len(ranks) > 1
    assert all(rank % 8 == 0 for rank in ranks)
    assert report.selected_ratio <= 0.6
    assert bool(torch.isfinite(answer(tmp_path / "small")).all())


@pytest.mark.slow
def test_a_trained_bolt_holds_its_forecasts_where_svd_does_not(tmp_path: Path) -> None:
    """The point of it all, on 24 series: joint at 0.4 is nearer to the model than svd at 0.4."""
    source = open_checkpoint("bundled-bolt")
    moments = calibrate(source, calibration_set("mixture:24", context=256, horizon=16))
    exact = answer(source)
    errors = {}
    for method in ("svd", "whitened", "joint"):
        compress(
            source, CompressOptions(attention_ratio=0.4, method=method, calibration=moments), out=tmp_path / method
        )
        errors[method] = float((answer(tmp_path / method) - exact).norm() / exact.norm())
    assert errors["joint"] < 0.6 * errors["svd"]
    assert errors["whitened"] < errors["svd"]
    pipeline = load_pipeline(tmp_path / "joint")
    assert bool(torch.isfinite(pipeline.predict(torch.arange(40.0), prediction_length=12)).all())
