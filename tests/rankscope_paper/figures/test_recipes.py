"""Recipes: all are there, and settings without a meaning are refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from rankscope.errors import OptionError
from rankscope.io import codec
from rankscope_paper.figures import CARRIED, FIGURES, Settings, choose, draw, state

PAPER = ["1", "2a", "2b", "2c", "3a", "3b", "4a", "4b", "4c", "5a", "5b", "5c", *map(str, range(6, 17)), "table2"]


def test_every_figure_of_the_paper_has_a_recipe() -> None:
    assert list(FIGURES) == [*PAPER, "lab-ranks", "start-end"]
    for number, recipe in FIGURES.items():
        assert recipe.id == number
        assert recipe.title
        assert recipe.shows
        assert (recipe.source == "saved") == (bool(recipe.data) and number != "1")
        assert bool(recipe.data) == bool(recipe.make)


def test_what_is_carried_is_what_some_recipe_reads() -> None:
    assert {file.name for file in CARRIED.iterdir()} <= {name for recipe in FIGURES.values() for name in recipe.data}


def test_numbers_are_found_however_they_are_written() -> None:
    assert [recipe.id for recipe in choose(["Fig. 2A", "fig16", "2a", "Table2"])] == ["2a", "16", "table2"]
    with pytest.raises(OptionError, match="figure '17' is not known: did you mean '7'"):
        choose(["4a", "17"])


@pytest.mark.parametrize(
    ("number", "settings", "part"),
    [
        ("4c", Settings(models=("x",)), "--model does not apply to figure 4c, which takes --data"),
        ("15", Settings(data=Path("x")), "--data does not apply to figure 15, which takes --seed"),
        ("5a", Settings(models=("x", "y")), "figure 5a takes at most 1 models, got 2"),
        ("2a", Settings(models=("x",), data=Path("y")), "figure 2a: give --model or --data, not both"),
        ("13", Settings(quick=True), "--quick does not apply to figure 13"),
    ],
)
def test_settings_without_a_meaning_are_refused(number: str, settings: Settings, part: str) -> None:
    with pytest.raises(OptionError, match=re.escape(part)):
        draw(FIGURES[number], settings)


def test_what_is_missing_is_said_with_the_command_that_makes_it() -> None:
    absent = state(replace(FIGURES["4a"], data=("nowhere.json",)))
    assert not codec.plain(absent)["ready"]
    assert absent.missing.startswith("there is no saved nowhere.json: make it with `rankscope sweep width --out DIR`")
    assert codec.plain(state(FIGURES["15"]))["ready"]
    assert state(FIGURES["2b"]).uses == ("bundled",)


@pytest.mark.parametrize("number", ["1", "2a", "2b", "3b", "4a", "5a", "5c", "8", "12"])
def test_models_are_measured_where_the_settings_say(
    number: str, chronos_t5_folder: Path, bolt_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device that is asked for is seen where every measurement looks its device up; the work stays on the CPU."""
    asked: list[str] = []

    def seen(device: str) -> str:
        asked.append(device)
        return "cpu"

    for module in ("embedding", "flow", "spectrum"):
        monkeypatch.setattr(f"rankscope.measure.{module}.resolve_device", seen)
    recipe = FIGURES[number]
    model = str(bolt_folder if number == "3b" else chronos_t5_folder)
    draw(recipe, Settings((model,), quick="quick" in recipe.takes, device="cuda:3"))
    assert set(asked) == {"cuda:3"}


def test_the_formula_of_figure_15() -> None:
    """Rank k of an embedding of k Chebyshev polynomials; the first panel is a straight line."""
    (drawn,) = draw(FIGURES["15"], Settings())
    straight = drawn.frame[drawn.frame["rank"] == 1]
    slopes = straight["second"] / straight["first"]
    assert slopes.max() == pytest.approx(slopes.min())
    assert (straight["first"] / straight["value"]).std() == pytest.approx(0, abs=1e-12)
    assert sorted(drawn.frame["rank"].unique()) == [1, 2, 4, 8, 16, 32]
    # another seed is another frame
    (other,) = draw(FIGURES["15"], Settings(seed=1))
    assert not other.frame["first"].equals(drawn.frame["first"])
    assert "seed 1" in other.caption
