from typing import Any

import pytest

from rankscope.errors import FamilyError
from rankscope.families import Factored, HeadWidth, Layout, read_layouts
from rankscope.lowrank.layout import TARGETS, low_rank_config

LAYOUTS: dict[str, Layout] = {
    "encoder.q": Factored(3),
    "encoder.k": Factored(2, heads=4),
    "encoder.o": Factored(2, heads=4, axis=1),
    "encoder": HeadWidth((1, 2), (3, 3)),
}


@pytest.mark.parametrize("family", TARGETS)
def test_config_round_trip_keeps_every_other_field(family: str) -> None:
    source: dict[str, Any] = {"model_type": "t5", "architectures": ["X"], "d_model": 8, "chronos_config": {"a": 1}}
    made = low_rank_config(source, family, LAYOUTS, "svd")
    assert read_layouts(made["rankscope"]) == LAYOUTS
    assert made["model_type"] == TARGETS[family].model_type
    assert made["architectures"] == [TARGETS[family].architecture]
    assert {key: made[key] for key in ("d_model", "chronos_config")} == {"d_model": 8, "chronos_config": {"a": 1}}
    assert made["rankscope"]["family"] == family
    assert source["model_type"] == "t5"


def test_unknown_family_lists_the_known() -> None:
    with pytest.raises(FamilyError, match="chronos-bolt"):
        low_rank_config({}, "llama", {}, "svd")
