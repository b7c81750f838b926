"""Layouts and sizes of a design, against counts by hand and against networks that are built."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from rankscope.errors import FamilyError, OptionError
from rankscope.families import FAMILIES, Factored, HeadWidth
from rankscope.io import codec
from rankscope.train.rank_layouts import by_design, design_layouts, design_report
from rankscope.train.rank_schedule import RankDesign, rank_at

BASE = {"d_model": 96, "d_kv": 16, "d_ff": 160, "num_heads": 6, "num_layers": 3, "num_decoder_layers": 2}
ALL = [
    RankDesign(2, 0.5),
    RankDesign(2, 0.5, cross_depth="continue"),
    RankDesign(2, 0.5, schedule="pow2", cross_depth="continue", mlp=True),
    RankDesign(2, 0.5, layout="factored"),
    RankDesign(5, 0.5, layout="factored", sketch="shared", mlp=True),
    RankDesign(60, 0.0, layout="factored", sketch="shared", mlp=True),
]
Make = Callable[..., dict[str, Any]]


def built(kind: str, config: dict[str, Any]) -> Any:
    from rankscope import lowrank

    names = {"chronos-t5": ("T5Config", "T5ForConditionalGeneration"), "chronos-bolt": ("BoltConfig", "BoltModel")}
    config_class, model_class = (getattr(lowrank, f"LowRank{name}") for name in names[kind])
    with torch.device("meta"):
        return model_class(config_class.from_dict(config))


@pytest.mark.parametrize("design", ALL)
@pytest.mark.parametrize("kind", ["chronos-t5", "chronos-bolt"])
def test_the_report_counts_what_a_built_network_holds(kind: str, design: RankDesign, tiny_config: Make) -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    config = tiny_config(kind, **BASE)
    report = design_report(config, design, "stock")
    model = built(kind, by_design(config, design))
    counted = {name: p.numel() for name, p in model.named_parameters()}
    assert report.parameters["after"] == sum(counted.values())
    attention = [n for name, n in counted.items() if "Attention." in name and "bias" not in name]
    assert report.attention["after"] == sum(attention)
    assert report.size_ratio == sum(attention) / (8 * 4 * 96 * 96 - 4 * 96 * 96)
    if kind == "chronos-t5":
        with torch.device("meta"):
            stock = T5ForConditionalGeneration(T5Config(**config))
        assert report.parameters["before"] == sum(p.numel() for p in stock.parameters())
    for row in report.layers:
        part = {"mlp": "DenseReluDense", "self-attention": "SelfAttention", "cross-attention": "EncDecAttention"}[
            row.part
        ]
        block = f"{row.stack}.block.{row.layer}."
        here = [
            n for name, n in counted.items() if name.startswith(block) and f".{part}." in name and "bias" not in name
        ]
        assert row.parameters_after == sum(here)
        assert row.parameters_after <= row.parameters_before


def test_ranks_by_stack_and_layer(tiny_config: Make) -> None:
    config = tiny_config("chronos-t5", **BASE)
    for cross_depth, first in (("restart", 0), ("continue", 3)):
        design = RankDesign(2, 0.5, cross_depth=cross_depth)
        layouts = design_layouts(config, design)
        assert len(layouts) == 3 + 2 * 2
        for i in range(3):
            assert layouts[f"encoder.block.{i}.layer.0.SelfAttention"] == width(rank_at(design, i, 16))
        for i in range(2):
            assert layouts[f"decoder.block.{i}.layer.0.SelfAttention"] == width(rank_at(design, i, 16))
            assert layouts[f"decoder.block.{i}.layer.1.EncDecAttention"] == width(rank_at(design, first + i, 16))


def width(rank: int) -> HeadWidth:
    return HeadWidth((rank,) * 6, (rank,) * 6)


def test_what_is_factored(tiny_config: Make) -> None:
    """Eq. 21 per head, o along its inputs; feed-forward at the rank over all heads; dense where nothing is saved."""
    config = tiny_config("chronos-t5", **BASE)
    module = "encoder.block.1.layer"
    layouts = design_layouts(config, RankDesign(2, 1.0, layout="factored", mlp=True))
    assert layouts[f"{module}.0.SelfAttention.q"] == Factored(4, 6, 0)
    assert layouts[f"{module}.0.SelfAttention.o"] == Factored(4, 6, 1)
    assert layouts[f"{module}.1.DenseReluDense.wi"] == Factored(24)
    layouts = design_layouts(config, RankDesign(5, 1.0, layout="factored", sketch="shared", mlp=True))
    assert layouts[f"{module}.0.SelfAttention.q"] == layouts[f"{module}.0.SelfAttention.o"] == Factored(10)
    assert layouts[f"{module}.1.DenseReluDense.wo"] == Factored(10)
    # 14·6·(96 + 16) numbers are more than 96·96, and 60 of the 160×96 feed-forward store 15,360 of 15,360
    assert design_layouts(config, RankDesign(14, 0.0, layout="factored")) == {}
    kept = design_layouts(config, RankDesign(10, 0.0, layout="factored", mlp=True))
    assert all("SelfAttention" in name or "EncDecAttention" in name for name in kept)
    assert kept


@pytest.mark.parametrize(("r0", "alpha"), [(3.0, 0.27), (5.0, 0.35), (7.0, 0.40)])
def test_size_and_cache_ratio_of_head_widths_are_the_mean_of_r_over_the_width(
    r0: float, alpha: float, tiny_config: Make
) -> None:
    """The definition behind the size column of Table 3, at the shape of Chronos-T5 base."""
    shape = {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_heads": 12, "num_layers": 12, "num_decoder_layers": 12}
    design = RankDesign(r0, alpha)
    report = design_report(tiny_config("chronos-t5", **shape), design)
    mean = sum(rank_at(design, i, 64) for i in range(12)) / 12 / 64
    assert report.size_ratio == pytest.approx(mean)
    assert report.cache_ratio == pytest.approx(mean)
    per_head = design_report(tiny_config("chronos-t5", **shape), RankDesign(r0, alpha, layout="factored"))
    assert per_head.size_ratio == pytest.approx(mean * (1 + 64 / 768))
    assert per_head.cache_ratio == 1.0
    shared = RankDesign(r0, alpha, layout="factored", sketch="shared")
    assert design_report(tiny_config("chronos-t5", **shape), shared).size_ratio == pytest.approx(mean * 2 / 12)


def test_chronos_2_can_be_factored(tiny_config: Make) -> None:
    config = tiny_config("chronos-2", d_model=64, d_kv=16, num_heads=4)
    report = design_report(config, RankDesign(2, 0.3, layout="factored"))
    assert {row.part for row in report.layers} == {"self-attention", "group attention"}
    assert report.size_ratio < 1


@pytest.mark.parametrize(
    ("design", "message"),
    [
        (
            RankDesign(14, 0.4),
            r"r\(i\) is 19 in encoder layer 1 \(self\.q\), above the head width 16: lower r0 \(now 14",
        ),
        (RankDesign(14, 0.4, layout="factored"), "above the head width 16"),
        (RankDesign(97, 0.0, layout="factored", sketch="shared"), "r.i. is 97 .* above the 96 that its matrices"),
        (RankDesign(8, 0.5, cross_depth="continue"), r"decoder layer 0 \(cross\.q\)"),
    ],
)
def test_ranks_above_the_head_width_are_refused(design: RankDesign, message: str, tiny_config: Make) -> None:
    changes = {**BASE, "num_layers": 3 if design.cross_depth == "restart" else 4}
    with pytest.raises(OptionError, match=message) as caught:
        design_layouts(tiny_config("chronos-t5", **changes), design)
    assert "\n" not in str(caught.value)


def test_powers_of_two_stop_at_the_head_width(tiny_config: Make) -> None:
    config = tiny_config("chronos-t5", **BASE)
    layouts = design_layouts(config, RankDesign(100, 1.0, schedule="pow2"))
    assert set(layouts.values()) == {width(16)}
    assert design_report(config, RankDesign(100, 1.0, schedule="pow2")).size_ratio == 1.0


def test_models_that_cannot_be_designed_are_refused(tiny_config: Make) -> None:
    with pytest.raises(FamilyError, match=r"rotary positions.*factored"):
        design_layouts(tiny_config("chronos-2"), RankDesign(2, 0.0))
    with pytest.raises(FamilyError, match="low-rank already"):
        design_layouts(by_design(tiny_config("chronos-t5"), RankDesign(2, 0.0)), RankDesign(1, 0.0))
    encoder = tiny_config("t5", architectures=["T5EncoderModel"], is_encoder_decoder=False)
    with pytest.raises(FamilyError, match="no decoder"):
        design_layouts(encoder, RankDesign(2, 0.0))


def test_report_as_table_and_document(tiny_config: Make) -> None:
    report = design_report(tiny_config("chronos-t5", **BASE), RankDesign(2, 0.5, layout="factored", mlp=True), "stock")
    frame = report.to_frame()
    assert list(frame["part"]).count("mlp") == 5
    assert frame["parameters_after"].sum() == sum(row.parameters_after for row in report.layers)
    found = codec.plain(report)
    assert found["schema"] == "rankscope/design@1"
    assert found["design"]["layout"] == "factored"
    assert FAMILIES[found["family"]].name == "chronos-t5"
