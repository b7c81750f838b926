"""ε-rank of every attention matrix against its layer (Fig. 5a, b)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from rankscope.errors import OptionError
from rankscope.plots.flow import eps_key
from rankscope.plots.labels import whole_numbers
from rankscope.plots.style import MARKS, figure, styled

if TYPE_CHECKING:
    from rankscope.measure.spectrum import SpectrumReport

_LETTERS = ("q", "k", "v", "o")
_SCOPES = ("self", "cross", "group")


def ranks_by_layer(report: SpectrumReport, *, eps: float | None = None) -> Figure:
    """ε-rank of W_Q, W_K, W_V and W_O against layer, one panel per stack and kind of attention.

    Args:
        report: from `rankscope.measure.spectrum.measure_spectrum`.
        eps: one of the report's, the first by default.

    Raises:
        OptionError: the report has no attention matrix, or not this ε.
    """
    panels = _panels(report, eps)
    if not panels:
        raise OptionError("the report holds no attention matrix: measure sites q, k, v or o.")
    key = eps_key(eps, report.sites[0].eps_ranks)
    with styled():
        fig, axes = figure(1, len(panels), height=2.2, sharey=True)
        for ax, ((stack, scope), roles) in zip(axes, panels.items(), strict=True):
            for letter, mark in zip(_LETTERS, MARKS, strict=False):
                if letter in roles:
                    layers, ranks = zip(*sorted(roles[letter].items()), strict=True)
                    ax.plot(
                        layers, ranks, label=f"$W_{letter.upper()}$", gid=f"{stack}.{scope}.{letter}", **mark.kwargs()
                    )
            ax.set_title(f"{stack}, {scope}")
            ax.set_xlabel("layer")
            ax.margins(x=0.08)
            whole_numbers(ax, most=4)
        axes[0].set_ylabel(f"ε-rank, ε = {key}")
        axes[0].set_ylim(bottom=0)
        named = {label: line for ax in axes for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        fig.legend(named.values(), named.keys(), loc="outside upper center", ncols=4)
    return fig


def _panels(report: SpectrumReport, eps: float | None) -> dict[tuple[str, str], dict[str, dict[int, int]]]:
    """(stack, scope) → letter → layer → ε-rank, in the order self, cross, group of each stack."""
    found: dict[tuple[str, str], dict[str, dict[int, int]]] = {}
    for row in report.sites:
        scope, _, letter = row.site.role.partition(".")
        if letter and row.site.layer is not None:
            roles = found.setdefault((row.site.stack, scope), {})
            roles.setdefault(letter, {})[row.site.layer] = row.eps_ranks[eps_key(eps, row.eps_ranks)]
    order = [(stack, scope) for stack in ("encoder", "decoder") for scope in _SCOPES]
    return {panel: found[panel] for panel in order if panel in found}
