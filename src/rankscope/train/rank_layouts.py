"""Layouts of a network under a rank schedule, and their savings in parameters and cache by layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

from rankscope.checkpoints import expected_shapes
from rankscope.errors import FamilyError, OptionError
from rankscope.families import Factored, Family, HeadWidth, Layout, Site, family_of, read_layouts
from rankscope.families.sites import SCOPES
from rankscope.families.weight_layout import low_rank_config
from rankscope.numerics.rank import factoring_pays
from rankscope.train.rank_schedule import RankDesign, rank_at

if TYPE_CHECKING:
    import pandas as pd


Shape = tuple[int, int]
MLP = "mlp"


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
    """Return True if the factors store fewer numbers than the matrix."""
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


@dataclass(frozen=True)
class LayerDesign:
    """One attention, or one feed-forward layer.

    Attributes:
        stack: ``encoder`` or ``decoder``.
        layer: 0-based layer.
        part: ``self-attention``, ``cross-attention``, ``group attention`` or ``mlp``.
        rank: r(i): width of the heads, or rank of the sketches. None where all matrices stay dense.
        dense: how many of its matrices stay dense, because factors would store no fewer numbers.
        parameters_before: numbers in the matrices of the stock layer.
        parameters_after: numbers stored by design.
        cache_ratio: keys and values per token, after over before; None where nothing is cached.
    """

    stack: str
    layer: int
    part: str
    rank: int | None
    dense: int
    parameters_before: int
    parameters_after: int
    cache_ratio: float | None

    KEYS: ClassVar = (
        *("stack", "layer", "part", "rank", "dense", "parameters_before", "parameters_after"),
        *("cache_ratio", "size_ratio"),
    )

    @property
    def size_ratio(self) -> float:
        """Numbers after over before."""
        return self.parameters_after / self.parameters_before


@dataclass(frozen=True)
class DesignReport:
    """A network by design beside the stock one.

    Attributes:
        model: name of the stock model.
        family: its family.
        design: schedule and layout.
        layers: one entry per attention and, where those are factored, feed-forward layer, in order of computation.
        parameters: numbers in the whole network, ``before`` and ``after``.
        attention: numbers in the attention matrices, ``before`` and ``after``.
        out: folder that was written, empty if none was.
        recipe: where the numbers of the training run come from: ``chronos`` or the model's own ``pretrain.json``.
        not_kept: settings of the model that a pretraining run cannot have, as "name: theirs → ours".
    """

    model: str
    family: str
    design: RankDesign
    layers: tuple[LayerDesign, ...]
    parameters: dict[str, int]
    attention: dict[str, int]
    out: str = ""
    recipe: str = ""
    not_kept: tuple[str, ...] = ()

    SCHEMA: ClassVar = "rankscope/design@1"
    KEYS: ClassVar = (
        *("model", "family", "out", "recipe", "design", "size_ratio", "cache_ratio", "parameters"),
        *("attention_parameters=attention", "not_kept", "layers"),
    )

    @property
    def size_ratio(self) -> float:
        """Σ numbers stored of the attention matrices, after over before (Q7).

        With head widths this is the mean of r(i)/d_kv over all attentions, as in the paper's Table 3.
        """
        return self.attention["after"] / self.attention["before"]

    @property
    def cache_ratio(self) -> float | None:
        """Keys and values per token over all decoder layers, after over before."""
        ratios = [row.cache_ratio for row in self.layers if row.cache_ratio is not None]
        return sum(ratios) / len(ratios) if ratios else None

    def to_frame(self) -> pd.DataFrame:
        """One row per layer and part."""
        import pandas as pd

        frame = pd.DataFrame([{**asdict(row), "size_ratio": row.size_ratio} for row in self.layers])
        return frame.astype({"rank": "Int64"})


def design_report(config: Mapping[str, Any], design: RankDesign, model: str = "") -> DesignReport:
    """Compare the network that ``design`` makes of a stock ``config.json`` with the stock one.

    Raises:
        FamilyError: the family has no such layout.
        OptionError: a rank does not fit into the network.
    """
    family = family_of(config)
    layouts = design_layouts(config, design)
    before = family.expected_shapes(config)
    changed = by_design(config, design)
    after = expected_shapes(changed, family, read_layouts(changed["rankscope"]))
    parts: dict[tuple[str, int, str], list[Site]] = {}
    for site in family.sites(config):
        if site.layer is None or (site.kind == "mlp" and not design.mlp):
            continue
        parts.setdefault((site.stack, site.layer, _part(site)), []).append(site)
    rows = tuple(_row(key, sites, layouts, before, after) for key, sites in parts.items())
    attention = [row for row in rows if row.part != MLP]
    return DesignReport(
        model=model,
        family=family.name,
        design=design,
        layers=rows,
        parameters={"before": _count(before.values()), "after": _count(after.values())},
        attention={
            "before": sum(row.parameters_before for row in attention),
            "after": sum(row.parameters_after for row in attention),
        },
    )


def _part(site: Site) -> str:
    return MLP if site.kind == MLP else SCOPES[site.role.partition(".")[0]]


def _row(
    key: tuple[str, int, str],
    sites: list[Site],
    layouts: Mapping[str, Layout],
    before: Mapping[str, tuple[int, ...]],
    after: Mapping[str, tuple[int, ...]],
) -> LayerDesign:
    stack, layer, part = key
    around = layouts.get(sites[0].module.rpartition(".")[0])
    factored = [layouts[site.module] for site in sites if isinstance(layouts.get(site.module), Factored)]
    width = around.qk[0] if isinstance(around, HeadWidth) else None
    ranks = [layout.rank for layout in factored if isinstance(layout, Factored)]
    rank = width if width is not None else (ranks[0] if ranks else None)
    cache = None
    if stack == "decoder" and part != MLP:
        cache = 1.0 if width is None else width / (sites[0].head_width or width)
    stored = [after[name] for site in sites for name in _names(site) if name in after]
    return LayerDesign(
        stack=stack,
        layer=layer,
        part=part,
        rank=rank,
        dense=0 if width is not None else len(sites) - len(factored),
        parameters_before=_count(before[site.name] for site in sites),
        parameters_after=_count(stored),
        cache_ratio=cache,
    )


def _names(site: Site) -> tuple[str, str, str]:
    return site.name, f"{site.module}.up.weight", f"{site.module}.down.weight"


def _count(shapes: Iterable[tuple[int, ...]]) -> int:
    return sum(prod(shape) for shape in shapes)
