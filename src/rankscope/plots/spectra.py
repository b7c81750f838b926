"""Weights of a model: spectra and ε-ranks by layer, before and after training, and sizes by ε (Fig. 5a, b; Q7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rankscope.errors import OptionError, unknown_choice
from rankscope.families.sites import LETTERS, SCOPES
from rankscope.numerics import eps_ranks, relative_spectrum, size_ratio
from rankscope.plots.falling import START_COLOUR, draw_spectra
from rankscope.plots.flow import eps_key
from rankscope.plots.labels import short_names, whole_numbers
from rankscope.plots.style import MARKS, figure, styled

if TYPE_CHECKING:
    from rankscope.measure.spectrum import SiteSpectrum, SpectrumReport

FLOOR = 1e-6
"""Relative singular values below this are rounding of float32 weights."""


def spectra(report: SpectrumReport, *, role: str = "self.q", stack: str = "encoder") -> Figure:
    """σ_j/σ_1 of one role in every layer of a stack, labelled at the line ends (first layers dark).

    Args:
        report: measured with spectra, not with ranks only.
        role: e.g. ``self.q`` or ``mlp_in``.
        stack: ``encoder`` or ``decoder``.

    Raises:
        OptionError: the report has no such site, or no spectra.
    """
    rows = [row for row in report.sites if (row.site.stack, row.site.role) == (stack, role)]
    if not rows:
        choices = sorted({f"{row.site.stack} {row.site.role}" for row in report.sites})
        raise OptionError(unknown_choice("site", f"{stack} {role}", choices))
    if any(row.sigma is None for row in rows):
        raise OptionError("the report holds ranks only: measure it with spectra to draw them.")
    with styled():
        fig, (ax,) = figure()
        _draw(ax, rows, most=14, height=1.7)
        ax.set_title(f"{stack}, {_role_title(role)}")
    return fig


def _draw(ax: Axes, rows: list[SiteSpectrum], *, most: int, height: float, starts: Sequence[SiteSpectrum] = ()) -> None:
    values, before = ([_relative(row) for row in some] for some in (rows, starts))
    labels, ids = [_layer_title(row.site.layer) for row in rows], [row.site.name for row in rows]
    draw_spectra(ax, values, labels, ids, floor=FLOOR, most=most, height=height, starts=before)
    ax.set_ylabel(r"$\sigma_j / \sigma_1$")


def _relative(row: SiteSpectrum) -> np.ndarray:
    return relative_spectrum(torch.as_tensor(row.sigma, dtype=torch.float64)).numpy()


def _role_title(role: str) -> str:
    scope, _, letter = role.partition(".")
    return f"$W_{letter.upper()}$ of {scope}-attention" if letter else role


def _layer_title(layer: int | None) -> str:
    return "model" if layer is None else f"layer {layer}"


def ranks_by_layer(report: SpectrumReport, *, eps: float | None = None) -> Figure:
    """ε-rank of W_Q, W_K, W_V and W_O against layer, one panel per stack and kind of attention.

    Matrices that no gradient reaches are left out: their ranks are those of the random start.

    Args:
        report: from `rankscope.measure.spectrum.measure_spectrum`.
        eps: one of the report's, the first by default.

    Raises:
        OptionError: the report has no attention matrix, or not this ε.
    """
    panels = _panels(report, eps)
    if not panels:
        raise OptionError("the report holds no attention matrix that was trained: measure sites q, k, v or o.")
    key = eps_key(eps, report.sites[0].eps_ranks)
    with styled():
        fig, axes = figure(1, len(panels), sharey=True)
        for ax, ((stack, scope), roles) in zip(axes, panels.items(), strict=True):
            for letter, mark in zip(LETTERS, MARKS, strict=False):
                if letter in roles:
                    layers, ranks = zip(*sorted(roles[letter].items()), strict=True)
                    label, gid = f"$W_{letter.upper()}$", f"{stack}.{scope}.{letter}"
                    ax.plot(layers, ranks, label=label, gid=gid, **mark.kwargs())
            ax.set_title(f"{stack}, {scope}")
            ax.set_xlabel("layer")
            ax.margins(x=0.08)
            whole_numbers(ax, most=4)
        axes[0].set_ylabel(f"ε-rank, ε = {key}")
        axes[0].set_ylim(bottom=0)
        named = {label: line for ax in axes for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        fig.legend(named.values(), named.keys(), loc="outside upper center", ncols=len(named))
    return fig


def _panels(report: SpectrumReport, eps: float | None) -> dict[tuple[str, str], dict[str, dict[int, int]]]:
    """(stack, scope) → letter → layer → ε-rank, in the order self, cross, group of each stack."""
    found: dict[tuple[str, str], dict[str, dict[int, int]]] = {}
    for row in report.sites:
        scope, _, letter = row.site.role.partition(".")
        if letter and row.site.layer is not None and report.is_trained(row):
            roles = found.setdefault((row.site.stack, scope), {})
            roles.setdefault(letter, {})[row.site.layer] = row.eps_ranks[eps_key(eps, row.eps_ranks)]
    order = [(stack, scope) for stack in ("encoder", "decoder") for scope in SCOPES]
    return {panel: found[panel] for panel in order if panel in found}


def size_by_eps(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Figure:
    """Size ratio against ε on a logarithmic axis, one line per model.

    Args:
        curves: model → (ε, size ratio), ε above 0.

    Raises:
        OptionError: no curve.
    """
    if not curves:
        raise OptionError("curves is empty: give at least one model.")
    with styled():
        fig, (ax,) = figure()
        names = short_names(list(curves))
        for i, (name, (eps, ratios)) in enumerate(zip(names, curves.values(), strict=True)):
            mark = MARKS[i % len(MARKS)].kwargs() | {"markevery": max(len(eps) // 8, 1)}
            ax.plot(eps, ratios, label=name, gid=name, **mark)
        ax.set_xscale("log")
        ax.set_ylim(0, 1.05)
        ax.set_xlabel("tolerance ε")
        ax.set_ylabel("size ratio")
        if len(curves) > 1:
            fig.legend(loc="outside upper left", ncols=1)
        else:
            ax.set_title(names[0])
    return fig


def size_of_report(report: SpectrumReport, eps: Sequence[float] | None = None) -> tuple[list[float], list[float]]:
    """Size ratio of the report's attention matrices at each ε, by default 61 of them from 1e-4 to 0.5.

    Raises:
        OptionError: the report holds ranks only.
    """
    levels = list(eps) if eps is not None else np.geomspace(1e-4, 0.5, 61).tolist()
    rows = [row for row in report.sites if row.site.kind == "attention"]
    if not rows or any(row.sigma is None for row in rows):
        raise OptionError("the report holds no spectra of attention matrices: measure them, not ranks only.")
    ranks = torch.stack([eps_ranks(torch.as_tensor(row.sigma), levels) for row in rows])
    shapes = [(int(row.shape[0]), int(row.shape[1])) for row in rows]
    return levels, [size_ratio(shapes, column.tolist()) for column in ranks.T]


MOST_LABELS = 8


def start_and_end(
    start: SpectrumReport, end: SpectrumReport, *, role: str = "self.q", stack: str = "encoder"
) -> Figure:
    """Relative spectra of one role before (grey, dashed) and after training, and below them ε-ranks against layer.

    Args:
        start: spectra of the network as it was drawn.
        end: spectra of the same network trained.
        role: e.g. ``self.q``.
        stack: ``encoder`` or ``decoder``.

    Raises:
        OptionError: a report lacks the site or its spectra, or the two are of different networks.
    """
    before, after = (_rows(report, role, stack) for report in (start, end))
    if [row.shape for row in before] != [row.shape for row in after]:
        raise OptionError(f"{start.model} and {end.model} differ in the shapes of {stack} {role}: give one network.")
    with styled():
        fig, (top, below) = figure(2, 1, height_ratios=(3, 2))
        _draw(top, after, most=MOST_LABELS, height=1.45, starts=before)
        top.set_title(f"{stack}, $W_{role[-1].upper()}$ of {role.partition('.')[0]}-attention")
        _both_ranks(below, before, after, list(after[0].eps_ranks))
        handles, labels = below.get_legend_handles_labels()
        fig.legend(handles, labels, loc="outside lower center", ncols=2)
    return fig


def _rows(report: SpectrumReport, role: str, stack: str) -> list[SiteSpectrum]:
    rows = [row for row in report.sites if (row.site.stack, row.site.role) == (stack, role)]
    if not rows or any(row.sigma is None for row in rows):
        raise OptionError(f"the report of {report.model} has no spectra of {stack} {role}: measure them.")
    return rows


def _both_ranks(ax: Axes, before: list[SiteSpectrum], after: list[SiteSpectrum], keys: list[str]) -> None:
    layers = [row.site.layer or 0 for row in after]
    for key, mark in zip(keys, MARKS, strict=False):
        look = mark.kwargs() | {"linestyle": "-"}
        ax.plot(layers, [row.eps_ranks[key] for row in after], label=f"ε = {key}, trained", **look)
        grey = look | {"color": START_COLOUR, "linestyle": "--", "markerfacecolor": START_COLOUR}
        grey |= {} if mark.filled else {"markerfacecolor": "white"}
        ax.plot(layers, [row.eps_ranks[key] for row in before], label=f"ε = {key}, before", **grey)
    ax.set_xlabel("layer")
    ax.set_ylabel("ε-rank")
    ax.set_ylim(0, 1.08 * max(max(row.eps_ranks[key] for key in keys) for row in [*before, *after]))
    ax.margins(x=0.08)
    whole_numbers(ax, most=6)
