"""Figures of a verb: all of them appear in their folder, or none."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.errors import OutputError
from rankscope.io.atomic import refuse_unwritable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rankscope.measure.embedding import EmbeddingReport
    from rankscope.measure.flow import FlowReport
    from rankscope.measure.spectrum import SpectrumReport

SPECTRUM = ("ranks_by_layer", "size_by_eps", "spectra_encoder", "spectra_decoder")
FLOW = ("flow_encoder", "flow_decoder")
EMBEDDING = ("embedding_spectra", "embedding_angles", "embedding_projection", "vocabulary_projection")
"""Names of the figures that each verb may draw."""
_SUFFIXES = (".png", ".svg")


def spectrum_figures(report: SpectrumReport) -> dict[str, Figure]:
    """Draw what a spectrum report holds: ranks need attention matrices, the others need singular values."""
    from rankscope import plots

    drawn: dict[str, Figure] = {}
    attention = any(row.site.kind == "attention" for row in report.sites)
    if attention:
        drawn["ranks_by_layer"] = plots.ranks_by_layer(report)
    if report.ranks_only:
        return drawn
    if attention:
        drawn["size_by_eps"] = plots.size_by_eps({report.model: plots.size_of_report(report)})
    for stack in dict.fromkeys(row.site.stack for row in report.sites):
        role = next(row.site.role for row in report.sites if row.site.stack == stack)
        drawn[f"spectra_{stack}"] = plots.spectra(report, role=role, stack=stack)
    return drawn


def flow_figures(report: FlowReport) -> dict[str, Figure]:
    """Draw the flow of ranks through each stack."""
    from rankscope import plots

    return {f"flow_{stack}": plots.flow(report, stack=stack) for stack in dict.fromkeys(r.stack for r in report.layers)}


def embedding_figures(report: EmbeddingReport) -> dict[str, Figure]:
    """Draw spectra, and angles and projections of the matrices that there are."""
    from rankscope import plots

    drawn = {"embedding_spectra": plots.embedding_spectra(report)}
    matrices = {row.matrix for row in report.rows}
    if "corpus" in matrices:
        drawn["embedding_angles"] = plots.embedding_angles(report)
        drawn["embedding_projection"] = plots.embedding_projection(report)
    if "vocabulary" in matrices:
        drawn["vocabulary_projection"] = plots.embedding_projection(report, matrix="vocabulary")
    return drawn


def check_figures(folder: str | None, stems: Iterable[str], force: bool) -> None:
    """Raise `OutputError` unless the figures named ``stems`` can be put into ``folder``; call it before long work."""
    if folder is None:
        return
    place = Path(folder)
    if place.exists() and not place.is_dir():
        raise OutputError(f"--figures {place} is a file: name a folder.")
    refuse_unwritable(place / "figure.png")
    for stem in stems:
        for suffix in _SUFFIXES:
            file = place / f"{stem}{suffix}"
            if file.exists() and not force:
                raise OutputError(f"--figures: {file} exists already: choose another folder, or pass --force.")


def drawing(folder: str | None, draw: Callable[[], Mapping[str, Figure]]) -> Callable[[], list[Path]] | None:
    """What draws and saves figures when it is called; None without a folder."""
    return None if folder is None else lambda: save_figures(folder, draw())


def save_figures(folder: str | Path, drawn: Mapping[str, Figure]) -> list[Path]:
    """Write every figure as PNG and SVG and move them into ``folder`` together; return what was written."""
    from rankscope.plots import save_figure

    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".figures.", suffix=".partial", dir=place) as work:
            for stem, figure in drawn.items():
                save_figure(figure, Path(work) / stem)
            return [_moved(file, place) for file in sorted(Path(work).iterdir())]
    except OSError as error:
        raise OutputError(f"cannot write into {place}: {error.strerror or error}.") from error


def _moved(file: Path, place: Path) -> Path:
    target = place / file.name
    os.replace(file, target)
    return target
