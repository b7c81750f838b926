"""Results as figures: one function each, one journal column wide, legible without colour."""

from rankscope.plots.embedding import angle_maps, embedding_angles, embedding_projection, embedding_spectra
from rankscope.plots.flow import flow
from rankscope.plots.histograms import histograms
from rankscope.plots.pareto import CostPoint, pareto, pareto_of_points
from rankscope.plots.spectra import ranks_by_layer, size_by_eps, size_of_report, spectra, start_and_end
from rankscope.plots.style import MARKS, STYLE_FILE, Mark, figure, save_figure, styled
from rankscope.plots.sweep import ranks_by_heads, ranks_by_vocabulary, ranks_by_width, spectra_by_patch
from rankscope.plots.tradeoff import table2
from rankscope.plots.training import training_spectra

__all__ = [
    "ranks_by_layer",
    "spectra",
    "flow",
    "angle_maps",
    "embedding_angles",
    "embedding_spectra",
    "embedding_projection",
    "size_by_eps",
    "size_of_report",
    "ranks_by_width",
    "ranks_by_vocabulary",
    "ranks_by_heads",
    "spectra_by_patch",
    "histograms",
    "training_spectra",
    "start_and_end",
    "pareto",
    "pareto_of_points",
    "CostPoint",
    "table2",
    "save_figure",
    "figure",
    "styled",
    "Mark",
    "MARKS",
    "STYLE_FILE",
]
