"""Fig. 3a, 4a, 4b, 4c: ranks and spectra of sweeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rankscope.errors import DataError
from rankscope.measure.spectrum import eps_key
from rankscope.measure.sweep import (
    ALL,
    MODELS,
    SweepReport,
    SweepRow,
    mean_head_rank,
    measure_models,
    read_sweep_report,
)
from rankscope.plots import ranks_by_vocabulary, ranks_by_width, spectra_by_patch
from rankscope.train.initial import initial_sweep
from rankscope_paper.figures.recipe import Drawn, Recipe, Settings, carried, sigma_frame

T5_SIZES = tuple(f"amazon/chronos-t5-{size}" for size in ("tiny", "mini", "small", "base", "large"))
TEXT_SIZES = tuple(f"google/t5-efficient-{size}" for size in ("tiny", "mini", "small", "base", "large"))
TEXT_MODELS = "rankscope standin t5 --text FILE --width W --out DIR` for several W, then `rankscope figures 4b -m DIR …"


def command(name: str) -> str:
    """Command that makes a sweep, shipped or of a file of that name."""
    return f"rankscope sweep {name} --out DIR"


def read_sweep(settings: Settings, name: str, make: str) -> SweepReport:
    """Measure the models that the settings name, or read their sweep, or the carried one.

    Raises:
        DataError: it cannot be read, or none of its points is done.
    """
    if settings.models:
        return measure_models(settings.models, device=settings.device, progress=settings.progress)
    path = settings.data if settings.data is not None else carried(name, make)
    report = read_sweep_report(path)
    if not report.done:
        states = ", ".join(sorted({row.state for row in report.points})) or "no points"
        raise DataError(f"{path}: no point of sweep {report.name!r} is done ({states}): let `rankscope sweep` finish.")
    return report


def draw_mean_ranks(
    settings: Settings,
    *,
    name: str,
    make: str,
    field: str,
    what: str,
    plot: Callable[..., Figure],
    by_head: bool = False,
) -> Drawn:
    """Draw mean ε-ranks of W_Q against one field of the points' configs.

    Args:
        settings: names another sweep, if any.
        name: of the carried result.
        make: command that makes it.
        field: dotted field that varies.
        what: its name in the caption.
        plot: draws the report, and the same sweep before training.
        by_head: ranks of single heads belong to the numbers.
    """
    report = read_sweep(settings, name, make)
    start = initial_sweep(report)
    frame = pd.concat(
        [
            rank_frame(one, field, by_head).assign(trained=one is report)
            for one in (report, start)
            if one.done  # published and proxy models record no run that could be begun again
        ],
        ignore_index=True,
    )
    tenth = min(report.eps, key=lambda eps: abs(eps - 0.1))
    tenths = frame[(frame["eps"] == tenth) & (frame["group"] == ALL)]
    first, before = tenths[tenths["trained"]], tenths[~tenths["trained"]]
    means = first.groupby(field, sort=True)["mean_rank"].mean()
    trend = ", ".join(f"{rank:.1f} at {value:g}" for value, rank in means.items())
    heads = ""
    if by_head:
        single = first.groupby(field, sort=True)["mean_head_rank"].mean()
        heads = f" Mean over single heads: {', '.join(f'{rank:.1f} at {value:g}' for value, rank in single.items())}."
    caption = (
        f"Mean ε-rank of W_Q over all layers and attentions against {what}, ε = "
        f"{', '.join(f'{eps:g}' for eps in sorted(report.eps, reverse=True))}. At ε = {tenth:g}: "
        f"{trend}.{_grey(before, field)}{heads} {measured_on(report)}"
    )
    return Drawn(plot(report, start=start), frame, caption)


def _grey(before: pd.DataFrame, field: str) -> str:
    if before.empty:
        return ""
    means = before.groupby(field, sort=True)["mean_rank"].mean()
    return f" Grey, before training: {', '.join(f'{rank:.1f} at {value:g}' for value, rank in means.items())}."


@partial(
    Recipe,
    id="3a",
    title="Embedding spectra by patch size",
    shows="Chronos-Bolt embeds larger patches into more dimensions",
    takes=("model", "data"),
    data=("patch.json",),
    make=command("patch"),
)
def fig3a(settings: Settings) -> Drawn:
    """Draw spectra of embedded sinusoids by patch size."""
    report = read_sweep(settings, "patch.json", command("patch"))
    parts, ranks = [], []
    for row in sorted(report.done, key=lambda one: one.number("model.patch_size")):
        corpus = row.corpus()
        sigma, size = np.asarray(corpus.sigma), int(row.number("model.patch_size"))
        relative = sigma / sigma[0] if sigma[0] > 0 else sigma
        parts.append(sigma_frame(relative, point=row.point, patch_size=size, tokens=corpus.tokens))
        key = min(corpus.eps_ranks, key=lambda one: abs(float(one) - 0.01))
        ranks.append(f"{corpus.eps_ranks[key]} at k = {size}")
    caption = (
        "Relative singular values of embedded sinusoids (64 series of 512 values, seed 0), one model per patch size "
        f"k. ε-ranks at ε = {float(key):g}: {', '.join(ranks)}. {measured_on(report)}"
    )
    return Drawn(spectra_by_patch(report), pd.concat(parts, ignore_index=True), caption)


def rank_frame(report: SweepReport, field: str, by_head: bool = False) -> pd.DataFrame:
    """Mean ε-rank of W_Q of every finished point, group of matrices and ε."""
    rows = []
    for row in report.done:
        assert row.ranks is not None
        head = {"point": row.point, field: row.number(field), "seed": row.config.get("seed", 0)}
        for eps in report.eps:
            for group, ranks in row.ranks.mean_ranks.items():
                one = {**head, "group": group, "eps": eps, "mean_rank": ranks[eps_key(eps)]}
                rows.append(
                    {**one, "mean_head_rank": mean_head_rank(row.ranks, eps_key(eps), group)} if by_head else one
                )
    frame = pd.DataFrame(rows)
    # the group of all matrices comes first: it is the one drawn
    return frame.sort_values(by="group", key=lambda group: group != ALL, kind="stable", ignore_index=True)


def measured_on(report: SweepReport) -> str:
    """Name the models that a sweep trained in a caption."""
    rows = report.done
    if report.name == MODELS:
        named = ", ".join(f"{row.point} ({row.parameters / 1e6:.3g} million numbers)" for row in rows)
        return f"Measured on {report.about}: {named}."
    config = rows[0].config
    seeds = sorted({int(row.config.get("seed", 0)) for row in rows})
    steps = sorted({row.steps for row in rows})
    lost = len(report.points) - len(rows)
    missing = f" {lost} of {len(report.points)} points are not done." if lost else ""
    return (
        f"Measured on {len(rows)} {config.get('family', 'model')} models of sweep {report.name!r}, {_sizes(rows)} "
        f"numbers each, trained from scratch for {_span(steps)} steps of {config.get('batch_size', '?')} generated "
        f"series; seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}.{missing}"
    )


def _sizes(rows: Sequence[SweepRow]) -> str:
    sizes = sorted({row.parameters for row in rows})
    return _span([float(f"{size:.2g}") / 1e6 for size in sizes]) + " million"


def _span(values: Sequence[float] | Sequence[int]) -> str:
    low, high = f"{values[0]:g}", f"{values[-1]:g}"
    return low if low == high else f"{low} to {high}"


_by_width = partial(
    draw_mean_ranks, field="model.d_model", what="the width d, over contours of rank/d", plot=ranks_by_width
)
fig4a = Recipe(
    partial(_by_width, name="width.json", make=command("width")),
    id="4a",
    title="Rank of W_Q against the width, Chronos",
    shows="the rank of W_Q hardly grows with the width d",
    takes=("model", "data"),
    data=("width.json",),
    make=command("width"),
    published=T5_SIZES,
)
fig4b = Recipe(
    partial(_by_width, name="text_width.json", make=TEXT_MODELS),
    id="4b",
    title="Rank of W_Q against the width, text",
    shows="in a text T5 the rank of W_Q grows in proportion to the width",
    takes=("model", "data"),
    data=("text_width.json",),
    make=TEXT_MODELS,
    published=TEXT_SIZES,
)
fig4c = Recipe(
    partial(
        draw_mean_ranks,
        name="chebyshev.json",
        make=command("chebyshev"),
        field="embedding.rank",
        what="the algebraic rank of a fixed Chebyshev vocabulary",
        plot=ranks_by_vocabulary,
    ),
    id="4c",
    title="Rank of W_Q against that of a fixed vocabulary",
    shows="the rank of W_Q grows with the rank of a fixed Chebyshev embedding",
    takes=("data",),
    data=("chebyshev.json",),
    make=command("chebyshev"),
)
