"""Models by design load, forecast, are measured and compressed like any other folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rankscope import load_pipeline, measure_flow, measure_spectrum, open_checkpoint
from rankscope.compress import CompressOptions, compress
from rankscope.families import FAMILIES as family_records
from rankscope.families import Factored, HeadWidth, Layout, Site
from rankscope.families.weight_layout import low_rank_config
from rankscope.train import ModelShape, PretrainConfig
from rankscope.train.models import new_model
from rankscope.train.rank_schedule import RankDesign

SHAPE = ModelShape(
    d_model=24, d_kv=6, d_ff=32, num_layers=2, num_decoder_layers=2, num_heads=4, n_tokens=64, patch_size=4,
    initializer_factor=1.0, start="broad",
)  # fmt: skip
DESIGNS = {
    "head-width": RankDesign(2, 0.8),
    "head-width and mlp": RankDesign(2, 0.4, mlp=True),
    "factored per head": RankDesign(2, 0.4, layout="factored"),
    "factored shared and mlp": RankDesign(3, 0.4, layout="factored", sketch="shared", mlp=True),
}
EPS = ("0.3", "0.02")
FAMILIES = ("chronos-t5", "chronos-bolt")
SERIES = torch.sin(torch.arange(40.0) / 3)[None] + torch.arange(3.0)[:, None]


def run(family: str, design: RankDesign | None) -> PretrainConfig:
    return PretrainConfig(family=family, model=SHAPE, low_rank=design, context=32, horizon=8)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """``folders("chronos-t5", "head-width")``: an untrained network by design, saved once."""
    root = tmp_path_factory.mktemp("by-design")

    def folder(family: str, design: str) -> Path:
        target = root / f"{family} {design}"
        if not target.exists():
            torch.manual_seed(0)
            new_model(run(family, DESIGNS[design])).save_pretrained(target)
        return target

    return folder


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Chronos-T5 whose heads differ in every way, with one factored matrix inside, as a compressor may write it."""
    from rankscope.lowrank import LowRankT5Config, LowRankT5ForConditionalGeneration

    stock = new_model(run("chronos-t5", None)).config.to_dict()
    attention = "encoder.block.1.layer.0.SelfAttention"
    layouts: dict[str, Layout] = {
        "encoder.block.0.layer.0.SelfAttention": HeadWidth((1, 4, 2, 6), (3, 3, 3, 3)),
        attention: HeadWidth((2, 5, 1, 4), (6, 1, 2, 3)),
        "decoder.block.0.layer.1.EncDecAttention": HeadWidth((2, 2, 2, 2), (1, 2, 3, 4)),
        f"{attention}.q": Factored(3),
        f"{attention}.o": Factored(2),
    }
    torch.manual_seed(0)
    config = low_rank_config(stock, family_records["chronos-t5"], layouts, "joint")
    folder = tmp_path_factory.mktemp("uneven") / "model"
    LowRankT5ForConditionalGeneration(LowRankT5Config.from_dict(config)).save_pretrained(folder)
    return folder


def dense(module: Any, site: Site) -> Tensor:
    """The matrix that the built module applies, float64."""
    layer = module.get_submodule(site.module)
    with torch.no_grad():
        return (layer.dense() if hasattr(layer, "dense") else layer.weight).double()


def measured_and_wanted(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Every ε-rank, of whole matrices and head by head: as measured, and as LAPACK counts it in float64.

    LAPACK is given the matrices that the module applies; singular values are compared on the way.
    """
    measured: dict[str, Any] = {}
    wanted: dict[str, Any] = {}
    checkpoint = open_checkpoint(folder)
    module = checkpoint.module()
    report = measure_spectrum(checkpoint, [float(eps) for eps in EPS], sites="all")
    for row in report.sites:
        w = dense(module, row.site)
        assert row.shape == tuple(w.shape)
        sigma = torch.linalg.svdvals(w)
        np.testing.assert_allclose(row.sigma, sigma[: len(row.sigma)], atol=1e-5 * float(sigma[0]))
        assert float(sigma[len(row.sigma) :].sum()) <= 1e-5 * float(sigma[0])
        measured[row.site.name] = row.eps_ranks, row.per_head_eps_ranks
        whole, by_head = {eps: count(sigma, float(eps)) for eps in EPS}, {}
        if row.site.heads is not None:
            parts = w.split(list(row.site.head_widths), dim=row.site.head_axis)
            heads = [torch.linalg.svdvals(part) for part in parts]
            by_head = {eps: [count(head, float(eps)) for head in heads] for eps in EPS}
        wanted[row.site.name] = whole, by_head
    return measured, wanted


def count(sigma: Tensor, eps: float) -> int:
    return int((sigma > eps * sigma[0]).sum())


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("family", FAMILIES)
def test_spectra(family: str, design: str, folders: Callable[[str, str], Path]) -> None:
    measured, wanted = measured_and_wanted(folders(family, design))
    assert measured == wanted


def test_spectra_of_uneven_heads(uneven: Path) -> None:
    measured, wanted = measured_and_wanted(uneven)
    assert measured == wanted


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_stock_loader_and_ours_forecast_the_same(
    family: str, design: str, folders: Callable[[str, str], Path]
) -> None:
    from chronos import BaseChronosPipeline

    forecasts = []
    for load in (load_pipeline, BaseChronosPipeline.from_pretrained):
        pipeline = load(str(folders(family, design)))
        torch.manual_seed(0)  # not before: building a model draws numbers in transformers 4
        forecasts.append(pipeline.predict(SERIES, prediction_length=8))
    assert torch.equal(*forecasts)
    assert forecasts[0].isfinite().all()
    assert forecasts[0].shape[-1] == 8


def test_uneven_heads_forecast(uneven: Path) -> None:
    assert load_pipeline(uneven).predict(SERIES, prediction_length=8).isfinite().all()


@pytest.mark.parametrize("design", DESIGNS)
def test_layouts_and_sizes_are_those_of_the_design(design: str, folders: Callable[[str, str], Path]) -> None:
    checkpoint = open_checkpoint(folders("chronos-t5", design))
    asked = DESIGNS[design]
    for site in checkpoint.sites("attention"):
        rank = (
            [2, 4][site.layer or 0] if design == "head-width" else [int(asked.r0), int(asked.r0) + 1][site.layer or 0]
        )
        if asked.layout == "head-width":
            assert checkpoint.layout(site) == "head-width"
            assert site.head_widths == (rank,) * 4
            assert checkpoint.stored(site) == 24 * 4 * rank
        else:
            assert checkpoint.layout(site) == "factored"
            assert checkpoint.shape(site) == (24, 24)
            heads = 4 if asked.sketch == "per-head" else 1
            assert checkpoint.stored(site) == rank * (heads * 24 + 24)
    kinds = {checkpoint.layout(site) for site in checkpoint.sites("mlp")}
    assert kinds == ({"factored"} if asked.mlp else {"dense"})


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("design", ["head-width", "factored per head"])
def test_flow(family: str, design: str, folders: Callable[[str, str], Path]) -> None:
    report = measure_flow(open_checkpoint(folders(family, design)), n=3, length=32, eps=[0.1])
    assert [(row.stack, row.layer) for row in report.layers] == [(s, i) for s in ("encoder", "decoder") for i in (0, 1)]
    checkpoint = open_checkpoint(folders(family, design))
    module = checkpoint.module()
    idle = checkpoint.family.untrained
    for row in report.layers:
        for site in checkpoint.sites("attention"):
            if (site.stack, site.layer) == (row.stack, row.layer) and (site.stack, site.role) not in idle:
                sigma = torch.linalg.svdvals(dense(module, site))
                assert row.weight_eps_ranks[site.role]["0.1"] == count(sigma, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "design"), [*(("chronos-t5", design) for design in DESIGNS), ("chronos-bolt", "head-width and mlp")]
)
def test_compressed_on_top(family: str, design: str, folders: Callable[[str, str], Path], tmp_path: Path) -> None:
    """Every matrix is within ε in the spectral norm, nothing stores more, and it loads, measures and is cut again."""
    source = folders(family, design)
    before = open_checkpoint(source)
    changed = 0
    for step, eps in enumerate((0.5, 0.9)):
        out = tmp_path / str(step)
        report = compress(source, CompressOptions(eps=eps, sites="attention,mlp", workers=1), out=out)
        after = open_checkpoint(out)
        assert report.parameters["after"] == after.parameters <= before.parameters
        assert report.parameters["before"] == before.parameters
        modules = before.module(), after.module()
        for site in before.sites(["attention", "mlp"]):
            old, new = (dense(module, site) for module in modules)
            error = torch.linalg.matrix_norm(old - new, 2) / torch.linalg.matrix_norm(old, 2)
            assert error <= eps + 1e-4, site
            assert after.stored(site) <= before.stored(site)
            assert site.head_widths == next(s for s in after.sites("all") if s.name == site.name).head_widths
            changed += after.stored(site) < before.stored(site)
        assert load_pipeline(out).predict(SERIES, prediction_length=8).isfinite().all()
        source, before = out, after
    assert changed
    measured, wanted = measured_and_wanted(source)
    assert measured == wanted


def test_compressing_nothing_keeps_every_bit(uneven: Path, tmp_path: Path) -> None:
    report = compress(uneven, CompressOptions(attention_ratio=1.0), out=tmp_path / "same")
    assert report.ratio == 1.0
    before, after = open_checkpoint(uneven), open_checkpoint(tmp_path / "same")
    assert all(torch.equal(before.tensor(name), after.tensor(name)) for name in before.index)
    assert after.config["rankscope"]["sites"] == before.config["rankscope"]["sites"]


def test_uneven_heads_are_cut_inside(uneven: Path, tmp_path: Path) -> None:
    compress(uneven, CompressOptions(eps=0.5), out=tmp_path / "cut")
    sites = json.loads((tmp_path / "cut" / "config.json").read_text())["rankscope"]["sites"]
    assert sites["encoder.block.0.layer.0.SelfAttention"]["qk"] == [1, 4, 2, 6]
    assert any(entry["layout"] == "factored" for entry in sites.values())
    measured, wanted = measured_and_wanted(tmp_path / "cut")
    assert measured == wanted
