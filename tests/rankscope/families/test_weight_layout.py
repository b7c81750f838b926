import math
from typing import Any

import pytest

from rankscope.errors import CheckpointError, FamilyError
from rankscope.families import FAMILIES, Factored, HeadWidth, Layout, read_layouts
from rankscope.families.weight_layout import low_rank_config

Q = "encoder.block.0.layer.0.SelfAttention.q"


def test_every_layout_is_read() -> None:
    sites = {
        "dense": {"layout": "dense"},
        "shared": {"layout": "factored", "rank": 3},
        "shared in words": {"layout": "factored", "rank": 3, "sketch": "shared"},
        "per head": {"layout": "factored", "rank": 3, "sketch": "per-head", "heads": 4},
        "per head of o": {"layout": "factored", "rank": 3, "sketch": "per-head", "heads": 4, "axis": 1},
        "widths": {"layout": "head-width", "qk": [1, 2], "vo": [3, 3]},
    }
    assert read_layouts({"version": 1, "sites": sites}) == {
        "shared": Factored(3),
        "shared in words": Factored(3),
        "per head": Factored(3, 4, 0),
        "per head of o": Factored(3, 4, 1),
        "widths": HeadWidth((1, 2), (3, 3)),
    }
    assert read_layouts(None) == {}


@pytest.mark.parametrize("layout", [Factored(3), Factored(2, 4), Factored(2, 4, 1)])
def test_numbers_of_the_stored_shapes(layout: Factored) -> None:
    """Eq. 20: r(d_out + d_in). Eq. 21: h blocks of r(d_head + d)."""
    d_out, d_in = 12, 20
    up, down = layout.shapes(d_out, d_in)
    assert layout.parameters(d_out, d_in) == math.prod(up) + math.prod(down)
    if layout.heads is None:
        assert layout.parameters(d_out, d_in) == 3 * (12 + 20)
    else:
        d_head, d = (12 // 4, 20) if layout.axis == 0 else (20 // 4, 12)
        assert layout.parameters(d_out, d_in) == 4 * 2 * (d_head + d)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ([], "must be an object"),
        ({"version": 1}, "an object named sites"),
        ({"version": 3, "sites": {}}, "version 3 is not known, this release reads 1 and 2"),
        ({"version": 1, "sites": {Q: {"layout": "head-widht"}}}, "did you mean 'head-width'"),
        ({"version": 1, "sites": {Q: {"layout": "factored", "rank": 0}}}, "found 0"),
        ({"version": 1, "sites": {Q: {"layout": "factored"}}}, "found None"),
        ({"version": 1, "sites": {Q: {"layout": "factored", "rank": True}}}, "found True"),
        ({"version": 1, "sites": {Q: {"layout": "factored", "rank": 2, "sketch": "head"}}}, "sketch of .* 'head'"),
        ({"version": 1, "sites": {Q: {"layout": "factored", "rank": 2, "sketch": "per-head"}}}, "heads of .*None"),
        (
            {
                "version": 1,
                "sites": {Q: {"layout": "factored", "rank": 2, "sketch": "per-head", "heads": 2, "axis": 2}},
            },
            "axis of .* must be 0 or 1, found 2",
        ),
        ({"version": 1, "sites": {Q: {"layout": "head-width", "qk": [2]}}}, "vo of .* found None"),
        ({"version": 1, "sites": {Q: {"layout": "head-width", "qk": [], "vo": [2]}}}, r"qk of .* found \[\]"),
        ({"version": 1, "sites": {Q: {"layout": "head-width", "qk": [2, 0], "vo": [2, 2]}}}, "found 0"),
        ({"version": 1, "sites": {Q: {"layout": "head-width", "qk": [2], "vo": [2, 2]}}}, "1 heads in qk and 2 in vo"),
    ],
)
def test_unreadable_blocks_are_refused(block: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        read_layouts(block)
    assert "\n" not in str(caught.value)


LAYOUTS: dict[str, Layout] = {
    "encoder.q": Factored(3),
    "encoder.k": Factored(2, heads=4),
    "encoder.o": Factored(2, heads=4, axis=1),
    "encoder": HeadWidth((1, 2), (3, 3)),
}


@pytest.mark.parametrize("family", [name for name, one in FAMILIES.items() if one.low_rank])
def test_config_round_trip_keeps_every_other_field(family: str) -> None:
    source: dict[str, Any] = {"model_type": "t5", "architectures": ["X"], "d_model": 8, "chronos_config": {"a": 1}}
    made = low_rank_config(source, FAMILIES[family], LAYOUTS, "svd")
    assert read_layouts(made["rankscope"]) == LAYOUTS
    target = FAMILIES[family].low_rank
    assert target is not None
    assert (made["model_type"], made["architectures"]) == (target.model_type, [target.architecture])
    assert {key: made[key] for key in ("d_model", "chronos_config")} == {"d_model": 8, "chronos_config": {"a": 1}}
    assert made["rankscope"]["family"] == family
    assert source["model_type"] == "t5"


def test_a_family_without_a_class_is_refused() -> None:
    with pytest.raises(FamilyError, match="no low-rank class of BERT models"):
        low_rank_config({}, FAMILIES["bert"], {}, "svd")
