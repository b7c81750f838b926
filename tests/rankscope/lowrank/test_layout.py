from typing import Any

import pytest

from rankscope.errors import FamilyError
from rankscope.families import FAMILIES, Factored, HeadWidth, Layout, read_layouts
from rankscope.families.weight_layout import low_rank_config

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


def test_a_family_without_a_class_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(FamilyError, match="chronos-bolt"):
        low_rank_config({}, FAMILIES["bert"], {}, "svd")
