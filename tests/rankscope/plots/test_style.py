import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from rankscope.errors import OutputError
from rankscope.measure.embedding import EmbeddingReport
from rankscope.plots import (
    CostPoint,
    embedding_angles,
    embedding_projection,
    embedding_spectra,
    flow,
    pareto,
    pareto_of_points,
    ranks_by_heads,
    ranks_by_layer,
    ranks_by_vocabulary,
    ranks_by_width,
    save_figure,
    size_by_eps,
    size_of_report,
    spectra,
    spectra_by_patch,
    training_spectra,
)
from rankscope.plots.style import COLUMN

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def figures(
    flow_report: Any, spectrum_report: Any, embedding_report: Any, sweep_report: Any, spectra_frame: Any
) -> dict[str, Callable[[], Figure]]:
    return {
        "width": lambda: ranks_by_width(sweep_report("d_model", [16, 32, 64, 128], seeds=2)),
        "vocabulary": lambda: ranks_by_vocabulary(sweep_report("rank", [1, 2, 4, 8, 16, 32])),
        "heads": lambda: ranks_by_heads(sweep_report("num_heads", [3, 6, 12, 24, 48, 96])),
        "patch": lambda: spectra_by_patch(sweep_report("patch_size", [1, 2, 4, 8, 16, 32])),
        "training": lambda: training_spectra(spectra_frame),
        "pareto": lambda: pareto(sweep_report("d_model", [1, 2, 3, 4, 5, 6, 7])),
        "flow": lambda: flow(flow_report),
        "ranks": lambda: ranks_by_layer(spectrum_report),
        "spectra": lambda: spectra(spectrum_report),
        "size": lambda: size_by_eps({"tiny": size_of_report(spectrum_report)}),
        "embedding": lambda: embedding_spectra(embedding_report),
        "projection": lambda: embedding_projection(embedding_report),
        "angles": lambda: embedding_angles(embedding_report),
        "long flow": lambda: flow(replace(flow_report, signal="mixed")),
        "long size": lambda: size_by_eps({f"{LONG}-{at}": size_of_report(spectrum_report) for at in range(4)}),
        "long embedding": lambda: embedding_spectra(long_names(embedding_report)),
        "long angles": lambda: embedding_angles(long_names(embedding_report)),
        "long pareto": lambda: pareto_of_points([CostPoint(f"{LONG}-{x}", x, x, x, 2.0 - x, 1.0) for x in (0.5, 1.0)]),
    }


LONG = "runs/chronos-bolt-base-joint-stream-0.15-int8-healed-on-series-of-my-own"


def long_names(report: EmbeddingReport) -> EmbeddingReport:
    return replace(report, rows=tuple(replace(row, model=f"{LONG}-{row.model[0]}") for row in report.rows))


SWEEPS = ("width", "vocabulary", "heads", "patch", "training", "pareto")
NAMES = ("flow", "ranks", "spectra", "size", "embedding", "projection", "angles", *SWEEPS)
NAMES += ("long flow", "long size", "long embedding", "long angles", "long pareto")


@pytest.mark.parametrize("name", NAMES)
def test_column_width_text_sizes_and_no_overlap(
    figures: dict[str, Callable[[], Figure]], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fig = figures[name]()
    assert fig.get_figwidth() == COLUMN
    drawn: list[Text] = []
    draw = Text.draw

    def record(text: Text, *args: Any, **kwargs: Any) -> None:
        drawn.append(text)
        draw(text, *args, **kwargs)

    monkeypatch.setattr(Text, "draw", record)
    fig.draw_without_rendering()
    boxes = [(text.get_text(), text.get_window_extent()) for text in drawn if text.get_text().strip()]
    assert len(boxes) > 5
    assert min(text.get_fontsize() for text in drawn) >= 7
    for i, (first, a) in enumerate(boxes):
        assert fig.bbox.x0 - 1 <= a.x0, first
        assert fig.bbox.x1 + 1 >= a.x1, first
        assert fig.bbox.y0 - 1 <= a.y0, first
        assert fig.bbox.y1 + 1 >= a.y1, first
        for second, b in boxes[i + 1 :]:
            wide = min(a.x1, b.x1) - max(a.x0, b.x0)
            tall = min(a.y1, b.y1) - max(a.y0, b.y0)
            assert wide <= 1 or tall <= 1, f"{first!r} meets {second!r}"


@pytest.mark.parametrize("name", NAMES)
def test_every_axis_is_named(figures: dict[str, Callable[[], Figure]], name: str) -> None:
    for ax in figures[name]().axes:
        shares_y = ax.get_shared_y_axes().joined(ax, ax.figure.axes[0]) and ax is not ax.figure.axes[0]
        is_bar = hasattr(ax, "_colorbar")
        inner = bool(ax.images) and not ax.get_subplotspec().is_first_col()  # maps of one axis name it at the left
        assert ax.get_xlabel() or is_bar
        assert ax.get_ylabel() or is_bar or shares_y or inner


def test_files_are_the_same_every_time_and_keep_text(figures: dict[str, Callable[[], Figure]], tmp_path: Path) -> None:
    first = save_figure(figures["spectra"](), tmp_path / "deep" / "a.b")
    again = save_figure(figures["spectra"](), tmp_path / "c")
    assert [path.name for path in first] == ["a.b.png", "a.b.svg"]
    for one, two in zip(first, again, strict=True):
        assert one.read_bytes() == two.read_bytes()
    root = ElementTree.parse(first[1]).getroot()
    texts = {"".join(node.itertext()).strip() for node in root.iter(f"{SVG}text")}
    assert {"layer 0", "layer 2"} <= texts
    assert b"date" not in first[1].read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.png", "c.svg", "deep"]


def test_png_has_300_dots_per_inch(figures: dict[str, Callable[[], Figure]], tmp_path: Path) -> None:
    from PIL import Image

    png, _ = save_figure(figures["size"](), tmp_path / "x")
    with Image.open(png) as image:
        assert image.width == round(COLUMN * 300)


def test_existing_files_are_kept_without_force(figures: dict[str, Callable[[], Figure]], tmp_path: Path) -> None:
    (tmp_path / "x.png").write_text("mine")
    with pytest.raises(OutputError, match="exists already"):
        save_figure(figures["size"](), tmp_path / "x", force=False)
    assert (tmp_path / "x.png").read_text() == "mine"


def test_global_settings_stay_as_they_were(figures: dict[str, Callable[[], Figure]], tmp_path: Path) -> None:
    with mpl.rc_context({"font.size": 31.0}):
        before = _settings()
        fig = figures["size"]()
        save_figure(fig, tmp_path / "x")
        assert _settings() == before
        assert fig.axes[0].xaxis.label.get_fontsize() == 7.5


def _settings() -> dict[str, Any]:
    return {key: mpl.rcParams[key] for key in mpl.rcParams if key != "backend"}  # asking for it loads pyplot
