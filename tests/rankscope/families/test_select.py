"""Which sites a list of words selects."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest

from rankscope.errors import OptionError
from rankscope.families import SELECTORS, Site, family_of, select_sites


@pytest.fixture
def sites(tiny_config: Callable[..., Any]) -> tuple[Site, ...]:
    config = tiny_config("chronos-t5")
    return family_of(config).sites(config)


def roles(sites: tuple[Site, ...], words: Any) -> set[str]:
    return {f"{site.stack[:3]}:{site.role}" for site in select_sites(sites, words)}


def test_attention_is_the_default(sites: tuple[Site, ...]) -> None:
    assert select_sites(sites) == select_sites(sites, ["attention"]) == select_sites(sites, ("q", "k", "v", "o"))
    assert len(select_sites(sites)) == 2 * 4 + 3 * 8


def test_all_is_everything_in_order(sites: tuple[Site, ...]) -> None:
    assert select_sites(sites, ["all"]) == sites
    assert select_sites(sites, ["attention", "mlp", "embedding"]) == sites


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("q", {"enc:self.q", "dec:self.q", "dec:cross.q"}),
        ("q,decoder", {"dec:self.q", "dec:cross.q"}),
        ("q,decoder,self", {"dec:self.q"}),
        ("cross,k,v", {"dec:cross.k", "dec:cross.v"}),
        ("mlp", {"enc:mlp_in", "enc:mlp_out", "dec:mlp_in", "dec:mlp_out"}),
        ("mlp,q,cross", {"enc:mlp_in", "enc:mlp_out", "dec:mlp_in", "dec:mlp_out", "dec:cross.q"}),
        ("encoder", {"enc:self.q", "enc:self.k", "enc:self.v", "enc:self.o"}),
        (
            "all,encoder,q",
            {"enc:self.q", "enc:self.k", "enc:self.v", "enc:self.o"} | {"enc:mlp_in", "enc:mlp_out", "enc:embedding"},
        ),
        (" Q , Encoder ", {"enc:self.q"}),
    ],
)
def test_words(sites: tuple[Site, ...], words: str, kept: set[str]) -> None:
    assert roles(sites, words) == kept == roles(sites, words.split(","))


def test_words_of_one_sort_add_up(sites: tuple[Site, ...]) -> None:
    for first, second in combinations(("q", "k", "v", "o", "mlp", "embedding", "attention"), 2):
        union = set(select_sites(sites, [first])) | set(select_sites(sites, [second]))
        assert set(select_sites(sites, [first, second])) == union


@pytest.mark.parametrize("words", [["w"], ["q", ""], "attn", ["Q K"]])
def test_unknown_words(sites: tuple[Site, ...], words: Any) -> None:
    with pytest.raises(OptionError, match="is not known") as caught:
        select_sites(sites, words)
    assert all(word in str(caught.value) for word in SELECTORS)


def test_an_empty_selection_says_what_there_is(sites: tuple[Site, ...]) -> None:
    with pytest.raises(OptionError, match=r"group selects no matrix of this model, which has cross\.k"):
        select_sites(sites, ["group"])
    with pytest.raises(OptionError, match="selects no matrix"):
        select_sites(sites, ["decoder", "embedding"])
