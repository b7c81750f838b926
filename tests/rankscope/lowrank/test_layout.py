from typing import Any

import pytest

from rankscope.errors import CheckpointError, FamilyError
from rankscope.lowrank.layout import TARGETS, factored_ranks, low_rank_config


@pytest.mark.parametrize("family", TARGETS)
def test_config_round_trip_keeps_every_other_field(family: str) -> None:
    source = {"model_type": "t5", "architectures": ["X"], "d_model": 8, "chronos_config": {"a": 1}}
    made = low_rank_config(source, family, {"encoder.q": 3}, "svd")
    assert factored_ranks(made["rankscope"]) == {"encoder.q": 3}
    assert made["model_type"] == TARGETS[family].model_type
    assert made["architectures"] == [TARGETS[family].architecture]
    assert {key: made[key] for key in ("d_model", "chronos_config")} == {"d_model": 8, "chronos_config": {"a": 1}}
    assert made["rankscope"]["family"] == family
    assert source["model_type"] == "t5"


def test_unknown_family_lists_the_known() -> None:
    with pytest.raises(FamilyError, match="chronos-bolt"):
        low_rank_config({}, "llama", {}, "svd")


@pytest.mark.parametrize("block", [None, {}])
def test_no_block_means_dense(block: dict[str, Any] | None) -> None:
    assert factored_ranks(block) == {}


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"version": 2, "sites": {}}, "newer than 1"),
        ({"sites": {"a": {"layout": "head-width", "rank": 2}}}, "layout 'head-width' is not known"),
        ({"sites": {"a": {"layout": "factored", "rank": 0}}}, "rank 0 is not a whole number"),
        ({"sites": {"a": {"layout": "factored"}}}, "rank None is not a whole number"),
        ({"sites": {"a": {"layout": "factored", "rank": 2.5}}}, "rank 2.5 is not a whole number"),
    ],
)
def test_unreadable_blocks_are_refused(block: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        factored_ranks(block)
