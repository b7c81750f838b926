"""Layout of the stored matrices of a checkpoint: the ``rankscope`` block of ``config.json``, read and written here.

``sites`` names modules. A linear layer may be ``factored``: two thin matrices in its place (eq. 20), or two for each
head (eq. 21). An attention may be ``head-width``: its heads have the widths that are listed, one number per head for
queries and keys (``qk``), one for values and outputs (``vo``). A feed-forward block may be of another ``width``: it
has as many hidden ``units`` as are listed, in place of the config's ``d_ff``. They may meet: q of a head-width
attention can itself be factored.

With ``storage`` ``int8`` the weight of every linear layer that `rankscope.families.Family.sites` lists (attention, MLP,
embedding of patches, Bolt's and Chronos-2's head) is whole numbers, and ``<weight>_scale`` holds one scale for each of
its rows; a factored matrix is two such weights. Token tables, T5's head, skip connections, norms, biases and position
biases stay floating point. In ``version`` 1 of the block all heads do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from rankscope.choices import SKETCHES, STORAGES, Storage
from rankscope.errors import CheckpointError, FamilyError, unknown_choice
from rankscope.families.record import Family
from rankscope.families.sites import Site

LayoutName = Literal["dense", "factored", "head-width", "width"]
VERSIONS = (1, 2)
"""Those that can be read. Written is 2 with ``int8``, so that releases that know heads in floating point only refuse
it, else 1."""
LAYOUTS: tuple[LayoutName, ...] = get_args(LayoutName)


@dataclass(frozen=True)
class Factored:
    """A matrix kept as two thin ones.

    Attributes:
        rank: inner size; of every head where each has a sketch of its own.
        heads: None for one sketch (eq. 20: W = up·down), else the number of heads that have their own (eq. 21).
        axis: axis of the (out, in) weight that splits into heads: 0 for q, k and v, 1 for o.
    """

    rank: int
    heads: int | None = None
    axis: int = 0

    @property
    def inner(self) -> int:
        """Inner size over all heads: an upper bound of the rank of the matrix."""
        return self.rank * (self.heads or 1)

    def shapes(self, d_out: int, d_in: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Shapes of the stored factors, up first; the factors of the heads lie below or beside each other.

        >>> Factored(3).shapes(8, 16), Factored(3, heads=2).shapes(8, 16), Factored(3, heads=2, axis=1).shapes(16, 8)
        (((8, 3), (3, 16)), ((8, 3), (6, 16)), ((16, 6), (6, 4)))
        """
        heads = self.heads or 1
        if self.axis == 0:
            return (d_out, self.rank), (heads * self.rank, d_in)
        return (d_out, heads * self.rank), (heads * self.rank, d_in // heads)

    def largest(self, d_out: int, d_in: int) -> int:
        """Largest rank that a matrix, or the part of it that belongs to one head, can have."""
        if self.heads is None:
            return min(d_out, d_in)
        return min(d_out // self.heads, d_in) if self.axis == 0 else min(d_out, d_in // self.heads)

    def parameters(self, d_out: int, d_in: int) -> int:
        """Numbers stored in both factors.

        >>> Factored(3, heads=2).parameters(8, 16)
        120
        """
        return sum(rows * columns for rows, columns in self.shapes(d_out, d_in))


@dataclass(frozen=True)
class HeadWidth:
    """Widths of the heads of one attention.

    Attributes:
        qk: width of every head's queries and keys.
        vo: width of every head's values.
    """

    qk: tuple[int, ...]
    vo: tuple[int, ...]

    def of(self, letter: str) -> tuple[int, ...]:
        """Widths of the heads in the matrix q, k, v or o."""
        return self.qk if letter in "qk" else self.vo


@dataclass(frozen=True)
class Width:
    """Width of one feed-forward block.

    Attributes:
        units: hidden units.
    """

    units: int


Layout = Factored | HeadWidth | Width
"""Layout of one module in ``rankscope.sites``; a module that it does not name is dense."""


def read_layouts(block: object) -> dict[str, Layout]:
    """Layout of every module that the ``rankscope`` block of a config lists, dense ones left out; no block is empty.

    >>> read_layouts({"version": 1, "sites": {"encoder.q": {"layout": "factored", "rank": 3}}})
    {'encoder.q': Factored(rank=3, heads=None, axis=0)}

    Raises:
        CheckpointError: its version, a layout or a number is not one that this release can read.
    """
    if block is None:
        return {}
    if not isinstance(block, Mapping) or not isinstance(block.get("sites"), Mapping):
        raise CheckpointError(
            "config.json: rankscope must be an object that holds an object named sites; "
            "use the config.json that was saved with the weights."
        )
    if block.get("version") not in VERSIONS:
        raise CheckpointError(
            f"config.json: rankscope.version {block.get('version')!r} is not known, this release reads "
            f"{' and '.join(map(str, VERSIONS))}: update rankscope."
        )
    found = {module: _layout(module, entry) for module, entry in block["sites"].items()}
    return {module: layout for module, layout in found.items() if layout is not None}


def head_widths(config: Mapping[str, Any], module: str, heads: int) -> HeadWidth | None:
    """Widths of the heads of the attention ``module``, None where they are the config's ``d_kv``.

    Raises:
        CheckpointError: the entry is unreadable, or lists another number of heads.
    """
    entry = _entry_of(config, module)
    if entry is None or entry.get("layout") != "head-width":
        return None
    found = _head_width(module, entry)
    if len(found.qk) != heads:
        raise CheckpointError(f"config.json: site {module} lists {len(found.qk)} heads, num_heads is {heads}.")
    return found


def hidden_units(config: Mapping[str, Any], module: str, d_ff: int) -> int:
    """Hidden units of the feed-forward block ``module``: ``d_ff`` unless the ``rankscope`` block says otherwise.

    >>> hidden_units({"rankscope": {"sites": {"a.mlp": {"layout": "width", "units": 3}}}}, "a.mlp", 8)
    3

    Raises:
        CheckpointError: the entry is unreadable.
    """
    entry = _entry_of(config, module)
    return d_ff if entry is None or entry.get("layout") != "width" else _width(module, entry).units


def layout_name(site: Site, layouts: Mapping[str, Layout]) -> LayoutName:
    """Layout of the matrix of a site; ``head-width`` and ``width`` are dense, at a width of their own."""
    if isinstance(layouts.get(site.module), Factored):
        return "factored"
    around = layouts.get(site.block)
    if isinstance(around, Width):
        return "dense" if site.hidden_axis is None else "width"
    return "dense" if around is None else "head-width"


def _entry_of(config: Mapping[str, Any], module: str) -> Mapping[str, Any] | None:
    block = config.get("rankscope")
    sites = block.get("sites") if isinstance(block, Mapping) else None
    entry = sites.get(module) if isinstance(sites, Mapping) else None
    return entry if isinstance(entry, Mapping) else None


def _layout(module: str, entry: object) -> Layout | None:
    name = entry.get("layout") if isinstance(entry, Mapping) else None
    if not isinstance(entry, Mapping) or name not in LAYOUTS:
        raise CheckpointError(unknown_choice(f"config.json: layout of {module}", name, LAYOUTS, "Update rankscope."))
    if name == "dense":
        return None
    if name == "width":
        return _width(module, entry)
    return _factored(module, entry) if name == "factored" else _head_width(module, entry)


def _factored(module: str, entry: Mapping[str, Any]) -> Factored:
    rank = _whole(f"rank of {module}", entry.get("rank"))
    sketch = entry.get("sketch", "shared")
    if sketch not in SKETCHES:
        raise CheckpointError(unknown_choice(f"config.json: sketch of {module}", sketch, SKETCHES, "Update rankscope."))
    if sketch == "shared":
        return Factored(rank)
    if entry.get("axis", 0) not in (0, 1):
        raise CheckpointError(f"config.json: axis of {module} must be 0 or 1, found {entry.get('axis')!r}.")
    return Factored(rank, _whole(f"heads of {module}", entry.get("heads")), entry.get("axis", 0))


def _head_width(module: str, entry: Mapping[str, Any]) -> HeadWidth:
    widths = []
    for key in ("qk", "vo"):
        listed = entry.get(key)
        if not isinstance(listed, (list, tuple)) or not listed:
            raise CheckpointError(
                f"config.json: {key} of {module} must list the width of every head, found {listed!r}."
            )
        widths.append(tuple(_whole(f"a width in {key} of {module}", width) for width in listed))
    if len(widths[0]) != len(widths[1]):
        raise CheckpointError(
            f"config.json: {module} lists {len(widths[0])} heads in qk and {len(widths[1])} in vo: "
            "both need one width per head."
        )
    return HeadWidth(*widths)


def _width(module: str, entry: Mapping[str, Any]) -> Width:
    return Width(_whole(f"units of {module}", entry.get("units")))


def _whole(what: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise CheckpointError(f"config.json: {what} must be a whole number ≥ 1, found {value!r}.")
    return value


_SCALE = "_scale"


def read_storage(block: object) -> Storage:
    """Storage of linear layers by the ``rankscope`` block of a config; floating point without a word.

    >>> read_storage(None), read_storage({"storage": "int8"})
    ('float', 'int8')

    Raises:
        CheckpointError: in a way that this release does not know.
    """
    found = block.get("storage", "float") if isinstance(block, Mapping) else "float"
    for storage in STORAGES:
        if found == storage:
            return storage
    raise CheckpointError(unknown_choice("config.json: rankscope.storage", found, STORAGES, "Update rankscope."))


def scale_name(weight: str) -> str:
    """Name of the tensor that holds the scales of a weight.

    >>> scale_name("encoder.q.weight")
    'encoder.q.weight_scale'
    """
    return f"{weight}{_SCALE}"


def scaled_weight(name: str) -> str | None:
    """Name of the weight whose scales the tensor ``name`` would hold, None where it cannot be scales.

    >>> scaled_weight("encoder.q.weight_scale"), scaled_weight("encoder.q.weight")
    ('encoder.q.weight', None)
    """
    return name.removesuffix(_SCALE) if name.endswith(_SCALE) else None


def linear_layers(sites: Iterable[Site], layouts: Mapping[str, Layout], block: object = None) -> frozenset[str]:
    """Modules of the linear layers that hold the matrices of ``sites``: a factored one is two, ``up`` and ``down``.

    Embedding tables are no linear layers.

    Args:
        sites: of the model.
        layouts: of its modules.
        block: ``rankscope`` of its config; in version 1 heads stay floating point, and are left out.
    """
    first = isinstance(block, Mapping) and block.get("version") == 1
    found: set[str] = set()
    for site in sites:
        if site.role == "embedding" or (first and site.kind == "head"):
            continue
        factored = isinstance(layouts.get(site.module), Factored)
        found |= {f"{site.module}.up", f"{site.module}.down"} if factored else {site.module}
    return frozenset(found)


def low_rank_config(
    config: Mapping[str, Any], family: Family, layouts: Mapping[str, Layout], method: str, storage: Storage = "float"
) -> dict[str, Any]:
    """Return ``config`` rewritten for a checkpoint whose modules have ``layouts``.

    Args:
        config: the source's ``config.json``; every field that is not about the class or the layout is kept.
        family: the base family.
        layouts: module name (no ``.weight``) → how it is stored; all others are dense.
        method: how the factors or widths were found, e.g. ``svd`` or ``design``.
        storage: in which numbers linear layers are stored.

    Raises:
        FamilyError: no low-rank model class stores models of it.
    """
    target = family.low_rank
    if target is None:
        raise FamilyError(f"there is no low-rank class of {family.title} models: rankscope families lists who has one.")
    version = 1 if storage == "float" else 2
    block: dict[str, Any] = {"version": version, "family": family.name, "method": method}
    if storage != "float":
        block["storage"] = storage
    if isinstance(known := config.get("rankscope"), Mapping) and "stream" in known:
        block["stream"] = known["stream"]
    sites = {name: _entry(layout) for name, layout in layouts.items()}
    changed = {
        **config,
        "model_type": target.model_type,
        "architectures": [target.architecture],
        "rankscope": {**block, "sites": sites},
    }
    if target.pipeline is not None:
        changed["chronos_pipeline_class"] = target.pipeline
    return changed


def _entry(layout: Layout) -> dict[str, Any]:
    """The entry of a module in the ``rankscope`` block."""
    if isinstance(layout, HeadWidth):
        return {"layout": "head-width", "qk": list(layout.qk), "vo": list(layout.vo)}
    if isinstance(layout, Width):
        return {"layout": "width", "units": layout.units}
    entry = {"layout": "factored", "rank": layout.rank}
    return (
        entry if layout.heads is None else {**entry, "sketch": "per-head", "heads": layout.heads, "axis": layout.axis}
    )
