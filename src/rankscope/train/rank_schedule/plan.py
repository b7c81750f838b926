"""From a schedule to the layout of every matrix of a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rankscope.errors import FamilyError, OptionError
from rankscope.families import Factored, Family, HeadWidth, Layout, Site, family_of
from rankscope.families.weight_layout import low_rank_config
from rankscope.numerics.rank import factoring_pays
from rankscope.train.rank_schedule.schedule import RankDesign, rank_at

Shape = tuple[int, int]


def by_design(config: Mapping[str, Any], design: RankDesign) -> dict[str, Any]:
    """Return the ``config.json`` of the network that ``design`` makes of a stock one.

    Raises:
        FamilyError: the family has no such layout.
        OptionError: a rank does not fit into the network.
    """
    return low_rank_config(config, family_of(config), design_layouts(config, design), "design")


def design_layouts(config: Mapping[str, Any], design: RankDesign) -> dict[str, Layout]:
    """Layout of every module that ``design`` changes, in the order of computation.

    Layer i of a stack has rank r(i), in self-attention and in cross-attention; the latter may count on from the
    encoder's last layer. ``head-width``: the heads of the layer have this width. ``factored``: every attention matrix
    has this rank, or each of its heads has. A matrix whose factors would store no fewer numbers stays dense.

    Args:
        config: a dense model's ``config.json``.
        design: the schedule and the layout.

    Raises:
        FamilyError: Chronos-2 with head widths, a model without decoder, or one that is not dense.
        OptionError: a rank is above the head width, or, of a shared sketch or an MLP, above what its matrices have.
    """
    family = family_of(config)
    sites, shapes = family.sites(config), family.expected_shapes(config)
    _check_model(config, family, sites, design)
    layouts: dict[str, Layout] = {}
    for site in sites:
        if site.kind == "attention":
            rank = site_rank(site, config, design)
            if design.layout == "head-width":
                widths = (rank,) * (site.heads or 1)
                layouts[site.module.rpartition(".")[0]] = HeadWidth(widths, widths)
                continue
        elif site.kind == "mlp" and design.mlp:
            rank = mlp_rank(site, config, design)
        else:
            continue
        d_out, d_in = shapes[site.name]
        layout = _factored(site, rank, design)
        if pays(layout, (d_out, d_in)):
            layouts[site.module] = layout
    return layouts


def site_rank(site: Site, config: Mapping[str, Any], design: RankDesign) -> int:
    """Rank r(i) of an attention matrix: of each head, or of the whole matrix with a shared sketch.

    Raises:
        OptionError: it is above the head width (shared sketch: above the size of the matrix).
    """
    heads, width = site.heads or 1, site.head_width or 1
    continued = site.role.startswith("cross.") and design.cross_depth == "continue"
    i = (site.layer or 0) + (config["num_layers"] if continued else 0)
    rank = rank_at(design, i, config["d_model"] // heads)
    shared = design.layout == "factored" and design.sketch == "shared"
    most = min(config["d_model"], heads * width) if shared else width
    if rank > most:
        what = f"the {most} that its matrices can have" if shared else f"the head width {most}"
        raise OptionError(
            f"r(i) is {rank} in {site.stack} layer {site.layer} ({site.role}), above {what}: "
            f"lower r0 (now {design.r0:g}) or alpha (now {design.alpha:g})."
        )
    return rank


def mlp_rank(site: Site, config: Mapping[str, Any], design: RankDesign) -> int:
    """Rank of a feed-forward matrix: that of the layer's self-attention over all heads, at most its full rank."""
    heads = config["num_heads"]
    rank = rank_at(design, site.layer or 0, config["d_model"] // heads)
    shared = design.layout == "factored" and design.sketch == "shared"
    return min(rank if shared else heads * rank, config["d_model"], config["d_ff"])


def pays(layout: Factored, shape: Shape) -> bool:
    """Whether the factors store fewer numbers than the matrix."""
    if layout.heads is None:
        return factoring_pays(shape, layout.rank)
    return layout.parameters(*shape) < shape[0] * shape[1]


def _factored(site: Site, rank: int, design: RankDesign) -> Factored:
    if site.kind == "attention" and design.sketch == "per-head":
        return Factored(rank, site.heads, site.head_axis or 0)
    return Factored(rank)


def _check_model(config: Mapping[str, Any], family: Family, sites: Sequence[Site], design: RankDesign) -> None:
    if config.get("rankscope"):
        raise FamilyError("the model is low-rank already: a design starts from the config.json of a stock model.")
    if family.rotary and design.layout == "head-width":
        raise FamilyError(
            f"{family.title} turns queries and keys by rotary positions, which fix the width of its heads: head-width "
            "is not offered for it, choose the layout factored."
        )
    if family.decoding and not any(site.stack == "decoder" for site in sites):
        raise FamilyError("the model has no decoder: only encoder-decoder T5 models can be designed.")
