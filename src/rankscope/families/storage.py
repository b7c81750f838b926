"""In which numbers a checkpoint stores its linear layers: the field ``rankscope.storage`` of ``config.json``.

With ``int8`` the weight of every linear layer that `rankscope.families.Family.sites` lists (attention, MLP and the
embedding of patches) is whole numbers, and ``<weight>_scale`` holds one scale for each of its rows; a factored matrix
is two such weights. Embedding tables, output heads, norms, biases and position biases stay floating point.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rankscope.choices import STORAGES, Storage
from rankscope.errors import CheckpointError, unknown_choice
from rankscope.families._record import Site
from rankscope.families.layouts import Factored, Layout

_SCALE = "_scale"


def read_storage(block: object) -> Storage:
    """How the ``rankscope`` block of a config says that linear layers are stored; floating point without a word.

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


def linear_layers(sites: Iterable[Site], layouts: Mapping[str, Layout]) -> frozenset[str]:
    """Modules of the linear layers that hold the matrices of ``sites``: a factored one is two, ``up`` and ``down``.

    Embedding tables are no linear layers.
    """
    found: set[str] = set()
    for site in sites:
        if site.role == "embedding":
            continue
        factored = isinstance(layouts.get(site.module), Factored)
        found |= {f"{site.module}.up", f"{site.module}.down"} if factored else {site.module}
    return frozenset(found)
