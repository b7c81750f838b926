import dataclasses

import numpy as np
import pytest
from matplotlib.collections import PathCollection

from rankscope.errors import OptionError
from rankscope.measure.embedding import EmbeddingReport
from rankscope.plots import angle_maps, embedding_angles, embedding_projection, embedding_spectra


def test_spectra_of_every_matrix(embedding_report: EmbeddingReport) -> None:
    fig = embedding_spectra(embedding_report)
    (ax,) = fig.axes
    drawn = {line.get_gid(): line for line in ax.lines}
    assert list(drawn) == ["quantised, corpus", "quantised, vocabulary", "patched, corpus"]
    for row, line in zip(embedding_report.rows, drawn.values(), strict=True):
        np.testing.assert_allclose(line.get_ydata(), row.sigma / row.sigma[0])
    assert [text.get_text() for text in fig.legends[0].get_texts()] == list(drawn)
    assert len({(line.get_marker(), line.get_linestyle()) for line in drawn.values()}) == 3


def modalities(report: EmbeddingReport, copies: int) -> EmbeddingReport:
    """The rows of a report again and again, as of models of their own that read series, text and images."""
    rows = tuple(
        dataclasses.replace(row, model=f"{row.model}-{i}", modality=("series", "text", "image")[i % 3])
        for i in range(copies)
        for row in report.rows
    )
    return dataclasses.replace(report, rows=rows)


def test_many_lines_are_told_apart_without_colour(embedding_report: EmbeddingReport) -> None:
    report = modalities(embedding_report, 6)
    fig = embedding_spectra(report)
    (ax,) = fig.axes
    # above eight matrices the vocabularies of models with a corpus are left out
    assert len(ax.lines) == 12
    assert len({(line.get_marker(), line.get_linestyle()) for line in ax.lines}) == 12
    dashes: dict[str, set[str]] = {}
    for line in ax.lines:
        dashes.setdefault(str(line.get_gid()).rsplit(", ", 1)[1], set()).add(str(line._dash_pattern))
    assert set(dashes) == {"series", "text", "image"}
    assert all(len(found) == 1 for found in dashes.values())
    assert len(set.union(*dashes.values())) == 3
    assert len(embedding_spectra(report, inputs_only=False).axes[0].lines) == 18


def test_the_index_is_a_share_where_widths_differ(embedding_report: EmbeddingReport) -> None:
    row = embedding_report.rows[0]
    assert len({row.largest_rank for row in embedding_report.rows}) == 1
    assert embedding_spectra(embedding_report).axes[0].get_xlabel().startswith("index $j$ of")
    narrow = dataclasses.replace(row, model="narrow", d_model=8, sigma=row.sigma[:8])
    report = dataclasses.replace(embedding_report, rows=(row, narrow))
    (ax,) = embedding_spectra(report).axes
    np.testing.assert_allclose(ax.lines[1].get_xdata(), np.arange(1, 9) / 8)
    np.testing.assert_allclose(embedding_spectra(report, share=False).axes[0].lines[1].get_xdata(), np.arange(1, 9))


@pytest.mark.parametrize(("matrix", "label"), [("corpus", "patch mean / s.d."), ("vocabulary", "token id")])
def test_projection_draws_the_points(embedding_report: EmbeddingReport, matrix: str, label: str) -> None:
    fig = embedding_projection(embedding_report, matrix=matrix)
    rows = [row for row in embedding_report.rows if row.matrix == matrix]
    shown = [ax for ax in fig.axes if ax.get_xlabel() == "along $v_1$"]
    bars = [ax for ax in fig.axes if ax not in shown]
    assert len(shown) == len(bars) == len(rows)
    for ax, row in zip(shown, rows, strict=True):
        (dots,) = (artist for artist in ax.collections if isinstance(artist, PathCollection))
        np.testing.assert_allclose(dots.get_offsets(), row.projection.points)
        np.testing.assert_allclose(dots.get_array(), row.projection.colour)
    assert {bar.get_xlabel() or bar.get_ylabel() for bar in bars} == {label}


def test_angle_maps_share_one_scale(embedding_report: EmbeddingReport) -> None:
    fig = embedding_angles(embedding_report)
    *maps, bar = fig.axes
    assert [ax.get_title(loc="left") for ax in maps] == ["quantised", "patched"]
    rows = [row for row in embedding_report.rows if row.matrix == "corpus"]
    for ax, row in zip(maps, rows, strict=True):
        (image,) = ax.images
        np.testing.assert_allclose(image.get_array(), np.rad2deg(row.angles))
        assert image.get_clim() == (0, 90)
    assert bar.get_ylabel() == "angle (degrees)"
    assert bar.get_yticks().tolist() == [0, 30, 60, 90]


def test_the_scale_of_angles_may_begin_above_zero() -> None:
    image, bar = angle_maps({"a": np.zeros((3, 3))}, least=45.0).axes
    assert image.images[0].get_clim() == (45, 90)
    assert bar._colorbar.extend == "min"  # what is below the scale is marked


def test_angles_of_zero_vectors_are_blank() -> None:
    angles = np.zeros((3, 3))
    angles[1] = np.nan
    (image,) = angle_maps({"a": angles}).axes[0].images
    np.testing.assert_array_equal(np.ma.getmaskarray(image.get_array()), np.isnan(angles))


def test_bad_maps() -> None:
    with pytest.raises(OptionError, match="maps is empty"):
        angle_maps({})
    with pytest.raises(OptionError, match=r"'a' must be square, got shape \(2, 3\)"):
        angle_maps({"a": np.zeros((2, 3))})


def test_a_matrix_that_was_not_measured(embedding_report: EmbeddingReport) -> None:
    for draw in (embedding_angles, embedding_projection):
        with pytest.raises(OptionError, match=r"no 'other' matrix: it has \['corpus', 'vocabulary'\]"):
            draw(embedding_report, matrix="other")
