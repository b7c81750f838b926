import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rankscope.checkpoints import open_checkpoint
from rankscope.errors import OptionError
from rankscope.io import codec
from rankscope.measure.corpora import patch_means
from rankscope.measure.embedding import EmbeddingReport, measure_embedding
from rankscope.numerics import angle_matrix
from rankscope.series.signals import corpus

Writer = Callable[..., Path]


def test_corpus_and_vocabulary_of_a_quantised_model(chronos_t5_folder: Path) -> None:
    checkpoint = open_checkpoint(chronos_t5_folder)
    report = measure_embedding([checkpoint], "sine", n=6, length=20, seed=2, batch_size=4, angle_items=9)
    over, table = report.rows
    assert (over.matrix, over.tokens, over.d_model, over.patch_size) == ("corpus", 120, 16, 1)
    assert (table.matrix, table.tokens, table.d_model) == ("vocabulary", 64, 16)
    x = checkpoint.family.embed(checkpoint.module(), corpus("sine", 6, 20, 2)).double()
    for row, matrix in ((over, x), (table, checkpoint.tensor("shared.weight").double())):
        np.testing.assert_allclose(row.sigma, torch.linalg.svdvals(matrix), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(row.angles, angle_matrix(matrix[:9]), atol=1e-6)
        # the two leading coordinates carry exactly the two leading singular values
        np.testing.assert_allclose(np.linalg.norm(row.projection.points, axis=0), row.sigma[:2], rtol=1e-6)
    assert (over.projection.colour_name, table.projection.colour_name) == ("patch mean", "token id")
    np.testing.assert_array_equal(table.projection.colour, np.arange(64))


def test_continuous_models_have_no_vocabulary(bolt_folder: Path, chronos2_folder: Path) -> None:
    checkpoints = [open_checkpoint(bolt_folder), open_checkpoint(chronos2_folder)]
    report = measure_embedding(checkpoints, "noise", n=4, length=18)
    assert [row.matrix for row in report.rows] == ["corpus", "corpus"]
    assert [row.family for row in report.rows] == ["chronos-bolt", "chronos-2"]
    assert report.rows[0].tokens == 4 * 5  # 18 values are five patches of four, the first one padded
    assert report.rows[0].projection.colour_name == "patch mean"


def test_text_models_show_their_vocabulary_only(t5_folder: Path) -> None:
    report = measure_embedding([open_checkpoint(t5_folder)])
    assert [row.matrix for row in report.rows] == ["vocabulary"]


def test_patch_means_follow_a_loop() -> None:
    series = torch.tensor([[1.0, 2.0, 3.0, 4.0, 6.0], [float("nan")] * 2 + [5.0, 1.0, 3.0]])
    got = patch_means(series, 2, 5)
    want = []
    for row in series.double().numpy():
        z = (row - np.nanmean(row)) / np.nanstd(row)
        for patch in ([z[0]], z[1:3], z[3:5]):
            if not np.isnan(patch).all():
                want.append(np.nanmean(patch))
    assert got is not None
    np.testing.assert_allclose(got, want, atol=1e-12)
    assert patch_means(series, 2, 6) is None
    assert torch.equal(patch_means(torch.zeros(2, 4), 2, 4), torch.zeros(4, dtype=torch.float64))


def test_a_series_cut_to_the_context_still_gets_a_colour(chronos_t5_folder: Path) -> None:
    report = measure_embedding([open_checkpoint(chronos_t5_folder)], n=2, length=40)  # the context is 32
    assert report.rows[0].tokens == 64
    assert report.rows[0].projection.colour_name == "token number"


def test_large_corpora_are_sampled(chronos_t5_folder: Path) -> None:
    report = measure_embedding([open_checkpoint(chronos_t5_folder)], n=10, length=32, points=50, seed=1)
    shown = report.rows[0].projection
    assert shown.points.shape == (50, 2)
    assert shown.colour.shape == (50,)
    again = measure_embedding([open_checkpoint(chronos_t5_folder)], n=10, length=32, points=50, seed=1)
    assert codec.plain(again) == codec.plain(report)


def test_json_round_trip_and_frame(chronos_t5_folder: Path) -> None:
    report = measure_embedding([open_checkpoint(chronos_t5_folder)], n=2, length=8, eps=(0.5, 0.01))
    data = json.loads(codec.text(report))
    assert data["schema"] == "rankscope/embed@1"
    assert codec.plain(codec.parse(EmbeddingReport, data)) == codec.plain(report)
    frame = report.to_frame()
    assert frame.eps_rank.tolist() == [rank for row in report.rows for rank in row.eps_ranks.values()]


def test_zero_tokens_have_no_angle_and_survive_json(
    tmp_path: Path, write_checkpoint: Writer, tiny_config: Callable[..., Any], random_tensors: Callable[..., Any]
) -> None:
    config = tiny_config("chronos-t5")
    tensors = random_tensors(config)
    tensors["shared.weight"][3] = 0
    report = measure_embedding([open_checkpoint(write_checkpoint(tmp_path / "m", config, tensors))], n=1, length=8)
    data = json.loads(codec.text(report))
    assert data["rows"][1]["angles"][3][5] is None
    assert np.isnan(codec.parse(EmbeddingReport, data).rows[1].angles[3]).all()


def test_bad_options(chronos_t5_folder: Path) -> None:
    checkpoint = open_checkpoint(chronos_t5_folder)
    with pytest.raises(OptionError, match="checkpoints is empty"):
        measure_embedding([])
    with pytest.raises(OptionError, match="angle_items 0 is not usable"):
        measure_embedding([checkpoint], angle_items=0)
    with pytest.raises(OptionError, match="eps"):
        measure_embedding([checkpoint], eps=(-0.1,))


@pytest.mark.usefixtures("untyped")
def test_checkpoints_come_one_or_many_open_or_by_name(bolt_folder: Path) -> None:
    one = open_checkpoint(bolt_folder)
    how: dict[str, Any] = {"n": 2, "length": 16, "angle_items": 4}
    first = measure_embedding([one], **how)
    assert len(first.rows) > 0
    for same in (one, bolt_folder, str(bolt_folder)):
        assert measure_embedding(same, **how) == first
    assert measure_embedding((each for each in (one, one)), **how).rows == 2 * first.rows
