"""What a design saves: rank, stored numbers and cache of every layer, before and after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

from rankscope.checkpoints import expected_shapes
from rankscope.families import Factored, HeadWidth, Layout, Site, family_of, read_layouts
from rankscope.train.rank_schedule.plan import by_design, design_layouts
from rankscope.train.rank_schedule.schedule import RankDesign

if TYPE_CHECKING:
    import pandas as pd

_SCOPES = {"self": "self-attention", "cross": "cross-attention", "group": "group attention"}
MLP = "mlp"


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
    return MLP if site.kind == MLP else _SCOPES[site.role.partition(".")[0]]


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
