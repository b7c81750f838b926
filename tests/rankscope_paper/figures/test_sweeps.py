"""Fig. 3a, 4, 14, 16: sweeps, their numbers and what cannot be drawn."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rankscope import open_checkpoint
from rankscope.errors import DataError
from rankscope.families import FAMILIES, HeadWidth
from rankscope.families.weight_layout import low_rank_config
from rankscope.lowrank import LowRankT5Config, LowRankT5ForConditionalGeneration
from rankscope_paper.figures import FIGURES, Settings, draw, write_drawn
from rankscope_paper.figures.heads import SCHEMA, compact_angles, read_angles

Sweep = Callable[..., Path]


@pytest.mark.parametrize(
    ("number", "field", "configs"),
    [
        ("4a", "model.d_model", [{"model": {"d_model": d}} for d in (32, 16)]),
        ("4b", "model.d_model", [{"model": {"d_model": d}} for d in (32, 16)]),
        ("4c", "embedding.rank", [{"embedding": {"rank": k}, "model": {}} for k in (4, 1)]),
        ("16", "model.num_heads", [{"model": {"num_heads": h, "d_kv": 96 // h}} for h in (6, 3)]),
    ],
)
def test_mean_ranks(sweep_folder: Sweep, number: str, field: str, configs: list[dict[str, Any]]) -> None:
    (drawn,) = draw(FIGURES[number], Settings(data=sweep_folder(configs) / "sweep.json"))
    frame = drawn.frame
    drawn_group = frame[(frame["group"] == "all") & (frame["eps"] == 0.1)].sort_values(field)
    assert drawn_group["mean_rank"].tolist() == [3.0, 2.0]
    assert frame[(frame["group"] == "encoder.self") & (frame["eps"] == 0.01)]["mean_rank"].tolist() == [5.0, 7.0]
    low, high = sorted(float(value) for value in frame[field].unique())
    assert f"At ε = 0.1: 3.0 at {low:g}, 2.0 at {high:g}." in drawn.caption
    assert "2 chronos-t5 models of sweep 'toy'" in drawn.caption
    assert "6 steps of 4 generated series; seed 0" in drawn.caption
    if number == "16":
        assert drawn_group["mean_head_rank"].tolist() == [3.0, 2.0]


def test_patch_sizes(sweep_folder: Sweep) -> None:
    folder = sweep_folder([{"model": {"patch_size": k}} for k in (8, 2)])
    (drawn,) = draw(FIGURES["3a"], Settings(data=folder / "sweep.json"))
    eight = drawn.frame[drawn.frame["patch_size"] == 8]["relative_sigma"]
    np.testing.assert_allclose(eight, 0.5 ** (np.arange(12) / 2))
    assert "ε-ranks at ε = 0.01: 3 at k = 2, 2 at k = 8" in drawn.caption


def test_sweeps_that_cannot_be_drawn(sweep_folder: Sweep, tmp_path: Path) -> None:
    def refused(number: str, path: Path) -> str:
        with pytest.raises(DataError) as caught:
            draw(FIGURES[number], Settings(data=path))
        assert "\n" not in str(caught.value)
        return str(caught.value)

    empty = tmp_path / "empty"
    empty.mkdir()
    assert refused("4a", empty) == f"folder {empty} holds no sweep.json: name the folder or file of a result."
    assert refused("4a", tmp_path / "x.json").startswith(f"there is no file or folder {tmp_path / 'x.json'}")
    folder = sweep_folder([{"model": {"d_model": 8}}])
    assert "has no number embedding.rank" in refused("4c", folder)
    file = folder / "sweep.json"
    document = json.loads(file.read_text())
    for changed, part in (
        (
            {**document, "schema": "rankscope/sweep@2"},
            "is rankscope/sweep@2: this release reads rankscope",
        ),
        ({"schema": "rankscope/sweep@1"}, "name is missing"),
        ([1], "names no schema"),
    ):
        file.write_text(json.dumps(changed))
        assert part in refused("4a", folder)
    file.write_text("{")
    assert "is not valid JSON" in refused("14", folder)


def test_a_sweep_without_a_finished_point(sweep_folder: Sweep) -> None:
    folder = sweep_folder([{"model": {"d_model": 8}}], state="begun")
    for number in ("3a", "4a", "14", "16"):
        with pytest.raises(DataError, match="no point of sweep 'toy' is done"):
            draw(FIGURES[number], Settings(data=folder))
    with pytest.raises(DataError, match="no point of sweep 'toy' is done and scored"):
        draw(FIGURES["6"], Settings(data=folder))


def test_angles_of_a_folder_survive_their_compact_table(
    sweep_folder: Sweep, write_checkpoint: Callable[..., Path], tiny_config: Callable[..., Any], tmp_path: Path
) -> None:
    folder = sweep_folder([{"model": {"num_heads": h, "d_kv": 8 // h}} for h in (4, 2)])
    for point, heads in (("p0", 4), ("p1", 2)):
        write_checkpoint(folder / "points" / point, tiny_config("chronos-t5", num_heads=heads, d_kv=8 // heads))
    (drawn,) = draw(FIGURES["14"], Settings(data=folder))
    files = write_drawn(FIGURES["14"], drawn, tmp_path / "out")
    saved = next(file for file in files if file.suffix == ".parquet")
    maps, about = read_angles(saved)
    assert [(title, widths) for title, (widths, _) in maps.items()] == [("h = 2", (4, 4)), ("h = 4", (2, 2, 2, 2))]
    assert "2 chronos-t5 models" in about
    weight = open_checkpoint(folder / "points" / "p0").tensor("encoder.block.0.layer.0.SelfAttention.q.weight")
    rows = weight.double().numpy()
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    expected = np.degrees(np.arccos(np.clip(np.abs(rows @ rows.T), 0, 1)))
    np.testing.assert_allclose(np.degrees(maps["h = 4"][1]), expected - np.diag(np.diag(expected)), atol=0.051)
    (again,) = draw(FIGURES["14"], Settings(data=saved))
    pd.testing.assert_frame_equal(again.frame, pd.read_csv(tmp_path / "out" / "fig14.csv"), check_dtype=False)
    ranks, few = draw(FIGURES["16"], Settings(data=folder))
    assert (ranks.name, few.name) == ("", "angles")
    pd.testing.assert_frame_equal(few.frame, again.frame[again.frame["model"] == "h = 2"].reset_index(drop=True))
    assert again.caption in (tmp_path / "out" / "fig14.txt").read_text().replace("\n", " ")


def test_angles_within_and_across_heads(tmp_path: Path) -> None:
    angles = np.radians([[0, 10, 80, 80], [10, 0, 80, 80], [80, 80, 0, 30], [80, 80, 30, 0]])
    file = tmp_path / "a.parquet"
    compact_angles({"h = 2": ((2, 2), angles)}, "Made up.").to_parquet(file)
    (drawn,) = draw(FIGURES["14"], Settings(data=file))
    assert "h = 2 20° and 80°. Made up." in drawn.caption


def test_angles_that_cannot_be_read(tmp_path: Path, sweep_folder: Sweep) -> None:
    file = tmp_path / "a.parquet"
    table = compact_angles({"h = 2": ((2, 2), np.zeros((4, 4)))}, "")
    table.assign(schema="rankscope/head-angles@0").to_parquet(file)
    with pytest.raises(DataError, match=f"expected a table of schema '{SCHEMA}', got 'rankscope/head-angles@0'"):
        draw(FIGURES["14"], Settings(data=file))
    file.write_text("no table")
    with pytest.raises(DataError, match="is not a Parquet file"):
        draw(FIGURES["14"], Settings(data=file))
    with pytest.raises(DataError, match="has no checkpoint points/p0: figure 14 needs the folder"):
        draw(FIGURES["14"], Settings(data=sweep_folder([{"model": {"num_heads": 2}}])))
    with pytest.raises(DataError, match="a row of W_Q is zero"):
        compact_angles({"h = 2": (2, np.full((2, 2), np.nan))}, "")


def test_finished_models_in_place_of_a_sweep(
    write_checkpoint: Callable[..., Path], tiny_config: Callable[..., Any], tmp_path: Path
) -> None:
    folders = [write_checkpoint(tmp_path / f"d{width}", tiny_config("chronos-t5", d_model=width)) for width in (24, 16)]
    (drawn,) = draw(FIGURES["4a"], Settings(models=tuple(map(str, folders))))
    frame = drawn.frame[(drawn.frame["group"] == "encoder.self") & (drawn.frame["eps"] == 0.1)]
    assert frame["model.d_model"].tolist() == [24.0, 16.0]
    for folder, mean in zip(folders, frame["mean_rank"], strict=True):
        ranks = []
        for layer in range(2):
            weight = open_checkpoint(folder).tensor(f"encoder.block.{layer}.layer.0.SelfAttention.q.weight").double()
            sigma = np.linalg.svd(weight.numpy(), compute_uv=False)
            ranks.append((sigma > 0.1 * sigma[0]).sum())
        assert mean == np.mean(ranks)
    assert f"Measured on finished checkpoints: {folders[0]} (" in drawn.caption


def test_heads_of_different_widths_are_blocks_of_their_own(tiny_config: Callable[..., Any], tmp_path: Path) -> None:
    layouts = {"encoder.block.0.layer.0.SelfAttention": HeadWidth((1, 5), (4, 4))}
    config = low_rank_config(tiny_config("chronos-t5"), FAMILIES["chronos-t5"], layouts, "joint")
    LowRankT5ForConditionalGeneration(LowRankT5Config.from_dict(config)).save_pretrained(tmp_path / "uneven")
    (drawn,) = draw(FIGURES["14"], Settings(models=(str(tmp_path / "uneven"),)))
    inside = drawn.frame.query("row >= 1")["degrees"].mean()
    across = drawn.frame.query("row == 0")["degrees"].mean()
    assert f"{inside:.0f}° and {across:.0f}°" in drawn.caption
    assert drawn.compact is None
