"""Fig. 1, 2, 3b, 8: what is drawn of embeddings is what a second implementation measures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from rankscope import measure_embedding, open_checkpoint
from rankscope.errors import DataError
from rankscope.io import codec
from rankscope.measure.tradeoff import read_table2
from rankscope.series.signals import corpus
from rankscope_paper.figures import CARRIED, FIGURES, Settings, draw
from rankscope_paper.figures.embedding import angle_frame


def embedded(folder: Path, signal: str) -> np.ndarray:
    checkpoint = open_checkpoint(folder)
    return checkpoint.family.embed(checkpoint.module(), corpus(signal, 8, 256, 0)).double().numpy()


def angle(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.degrees(np.arccos(min(1.0, abs(x @ y) / np.linalg.norm(x) / np.linalg.norm(y)))))


def test_spectra_of_several_models(bolt_folder: Path, chronos_t5_folder: Path) -> None:
    models = (str(bolt_folder), str(chronos_t5_folder))
    (drawn,) = draw(FIGURES["2a"], Settings(models=models, quick=True))
    frame = drawn.frame
    # one line per model: the embedded corpus, not the vocabulary beside it
    assert set(zip(frame["model"], frame["matrix"], strict=True)) == {(model, "corpus") for model in models}
    sigma = np.linalg.svd(embedded(bolt_folder, "mixed"), compute_uv=False)
    ours = frame[frame["model"] == models[0]]
    np.testing.assert_allclose(ours["relative_sigma"], sigma / sigma[0], atol=1e-7)
    assert f"{models[0]} {int((sigma > 0.1 * sigma[0]).sum())} of 16" in drawn.caption
    assert "8 series of 256 values, seed 0" in drawn.caption
    assert "trained (the mark of the model, dots of the others)" in drawn.caption


def test_a_saved_report_is_drawn_as_it_was_measured(bolt_folder: Path, tmp_path: Path) -> None:
    report = measure_embedding([open_checkpoint(bolt_folder)], "mixed", n=8, length=256)
    file = tmp_path / "embed.json"
    file.write_text(json.dumps(codec.plain(report)))
    saved, fresh = (
        draw(FIGURES["2a"], settings)[0].frame
        for settings in (Settings(data=file), Settings(models=(str(bolt_folder),), quick=True))
    )
    assert saved.equals(fresh)
    file.write_text(json.dumps({**codec.plain(report), "schema": "rankscope/embed@9"}))
    with pytest.raises(DataError, match=r"embed\.json is rankscope/embed@9: this release"):
        draw(FIGURES["2a"], Settings(data=file))


def test_projections_are_those_on_the_leading_vectors(chronos_t5_folder: Path) -> None:
    (drawn,) = draw(FIGURES["2b"], Settings(models=(str(chronos_t5_folder),), quick=True))
    table = open_checkpoint(chronos_t5_folder).tensor("shared.weight").double().numpy()
    _, sigma, vh = np.linalg.svd(table)
    for column, vector in zip(("along_v1", "along_v2"), vh[:2], strict=True):
        np.testing.assert_allclose(np.abs(drawn.frame[column]), np.abs(table @ vector), atol=1e-6)
    share = (sigma[:2] ** 2).sum() / (sigma**2).sum()
    assert f"{share:.0%}" in drawn.caption
    assert drawn.frame["token_id"].tolist() == list(range(64))


def test_angles_between_patches_and_between_random_vectors(bolt_folder: Path) -> None:
    (drawn,) = draw(FIGURES["3b"], Settings(models=(str(bolt_folder),), quick=True, seed=0))
    maps = drawn.frame.groupby("map", sort=False)
    assert list(maps.groups) == ["sinusoids", "white noise", "random, d = 4", "random, d = 16"]
    x = embedded(bolt_folder, "noise")
    noise = maps.get_group("white noise").set_index(["row", "column"])["degrees"]
    for i, j in ((0, 1), (3, 40), (50, 63)):
        assert noise[i, j] == pytest.approx(angle(x[i], x[j]), abs=0.051)
    assert len(x) == 64  # the model cuts series to its context, so there are fewer than wanted
    assert len(noise) == 64 * 63 // 2
    assert "first 64 patches of 8 series of 256 values" in drawn.caption
    for dimension in (4, 16):
        cosine = np.cos(np.radians(maps.get_group(f"random, d = {dimension}")["degrees"])).mean()
        u = torch.randn(4000, dimension, generator=torch.Generator().manual_seed(5))
        expected = float((u[:, 0].abs() / u.norm(dim=1)).mean())
        assert cosine == pytest.approx(expected, abs=0.03)


def test_angle_frame_holds_each_pair_once() -> None:
    angles = np.radians([[0.0, 30.0, 45.0], [30.0, 0.0, 60.04], [45.0, 60.04, 0.0]])
    frame = angle_frame({"m": angles})
    assert frame.values.tolist() == [["m", 0, 1, 30.0], ["m", 0, 2, 45.0], ["m", 1, 2, 60.0]]


def test_models_with_and_without_a_vocabulary_are_no_one_figure(bolt_folder: Path, chronos_t5_folder: Path) -> None:
    models = (str(bolt_folder), str(chronos_t5_folder))
    with pytest.raises(DataError, match="chronos-bolt has no vocabulary, as the others have: draw it by itself"):
        draw(FIGURES["2b"], Settings(models=models, quick=True))


def test_strategies_under_both_signals(bolt_folder: Path, chronos_t5_folder: Path) -> None:
    models = (str(chronos_t5_folder), str(bolt_folder))
    (drawn,) = draw(FIGURES["8"], Settings(models=models, quick=True))
    for signal in ("noise", "sine"):
        x = embedded(bolt_folder, signal)
        sigma = np.linalg.svd(x, compute_uv=False)
        ours = drawn.frame[(drawn.frame["signal"] == signal) & (drawn.frame["model"] == models[1])]
        np.testing.assert_allclose(ours[ours["quantity"] == "spectrum"]["relative_sigma"], sigma / sigma[0], atol=1e-7)
        first = ours[ours["quantity"] == "angle"].iloc[0]
        assert first["degrees"] == pytest.approx(angle(x[0], x[1]), abs=0.051)
    assert sum(bool(ax.images) for ax in drawn.figure.axes) == 4


def test_models_of_text_and_images_embed_no_signal(t5_folder: Path) -> None:
    for model in (str(t5_folder), "bundled-vit"):
        for number in ("3b", "5c", "8"):
            with pytest.raises(DataError, match=f"embeds no series, but .*: figure {number} needs series"):
                draw(FIGURES[number], Settings(models=(model,), quick=True))


def test_angles_of_patches_need_patches(chronos_t5_folder: Path) -> None:
    with pytest.raises(DataError, match="embeds single values: figure 3b compares patches"):
        draw(FIGURES["3b"], Settings(models=(str(chronos_t5_folder),), quick=True))


def test_the_overview_repeats_its_three_measurements(bolt_folder: Path, chronos_t5_folder: Path) -> None:
    models = (str(chronos_t5_folder), str(bolt_folder))
    (drawn,) = draw(FIGURES["1"], Settings(models=models, quick=True))
    frame = drawn.frame
    sigma = np.linalg.svd(embedded(bolt_folder, "mixed"), compute_uv=False)
    a = frame[(frame["panel"] == "a") & (frame["line"] == "chronos-bolt")]
    np.testing.assert_allclose(a["value"], sigma / sigma[0], atol=1e-7)
    b = frame[(frame["panel"] == "b") & (frame["line"] == "chronos-t5")]
    checkpoint = open_checkpoint(chronos_t5_folder)
    for layer, share in zip(b["x"], b["value"], strict=True):
        weight = checkpoint.tensor(f"encoder.block.{int(layer)}.layer.0.SelfAttention.q.weight").double().numpy()
        sigma = np.linalg.svd(weight, compute_uv=False)
        assert share == pytest.approx((sigma > 0.1 * sigma[0]).sum() / min(weight.shape))
    c = frame[frame["panel"] == "c"]
    assert set(c["line"]) == {"SVD", "whitened", "joint"}
    table = read_table2(CARRIED / "table2_bundled-bolt.json")
    default = [row for row in table.rows if (row.method, row.allocation) == ("joint", "sensitivity")]
    assert sorted(c[c["line"] == "joint"]["value"]) == sorted(row.median.relative_WQL for row in default)
