"""The models of a page, and the descent of one from another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rankscope.families import FAMILIES
from rankscope_eval.numbers import MISSING, count, size
from rankscope_eval.page.lineage import Group, Library
from rankscope_eval.page.parts import Part, Row, Section, Table, number
from rankscope_eval.page.sections.savings import method_name


@dataclass(frozen=True)
class Facts:
    """Facts of one model from its documents; None where they state none.

    Attributes:
        name: of the model.
        family: its family's title.
        origin: what it was made of and how, empty for one that was not made here.
        parameters: numbers stored.
        bytes: of its weights.
        shape: width, heads and layers, empty where no checkpoint or spectrum tells.
    """

    name: str
    family: str
    origin: str
    parameters: int | None
    bytes: int | None
    shape: str


def models_section(library: Library) -> Section:
    """One row per model."""
    found = [facts(library, name) for group in library.groups for name in group.members]
    rows: list[Row] = [
        [
            one.name,
            one.family or MISSING,
            one.origin or "given",
            one.shape or MISSING,
            number(one.parameters, count(one.parameters)),
            number(one.bytes, size(one.bytes)),
        ]
        for one in found
    ]
    heads = ["model", "family", "origin", "shape", "parameters", "weights"]
    tables = [Table("Models on this page", heads, rows, "models-table", texts=(1, 2, 3))] if rows else []
    return Section("models", "Models", "Models", [Part(tables=tables)] if tables else [])


def facts(library: Library, name: str) -> Facts:
    """Gather what is known of a model."""
    group = library.group_of(name) or Group(name, (name,))
    alone = Group(name, (name,))
    families = [
        one.content.family for kind in ("spectrum", "compress", "heal", "table2") for one in library.about(kind, group)
    ]
    families += [
        row.family for one in library.of("embed") for row in one.content.rows if library.resolve(row.model) == name
    ]
    folder = library.checkpoint(name)
    if folder is not None:
        families.insert(0, folder.checkpoint.family.name)
    family = families[0] if families else ""
    known = FAMILIES.get(family)
    return Facts(
        name=name,
        family=known.title if known is not None else family,
        origin=_origin(library, name),
        parameters=next(_sizes(library, name, alone, "parameters"), None),
        bytes=next(_sizes(library, name, alone, "bytes"), None),
        shape=_shape(library, name, alone),
    )


def _origin(library: Library, name: str) -> str:
    if name not in library.parents:
        return ""
    parent, document = library.parents[name]
    made = document.content
    if document.kind == "heal":
        return f"{parent}, healed for {count(made.steps)} steps"
    kept = "" if made.recast else f" to {made.ratio:.3f} of all parameters"
    return f"{parent}, {method_name(made)}{kept}"


def _sizes(library: Library, name: str, alone: Group, what: str) -> Iterator[int]:
    """Parameters or bytes of a model, from every result that says them."""
    folder = library.checkpoint(name)
    if folder is not None:
        yield getattr(folder.checkpoint, what)
    for one in library.of("compress"):
        said = getattr(one.content, what)
        for end, model in (("before", one.content.model), ("after", one.content.out)):
            if library.resolve(model) == name and end in said:
                yield said[end]
    for one in library.about("table2", alone):
        yield getattr(one.content.original, what)
    for one in library.of("heal"):
        if what == "parameters" and library.resolve(one.content.out) == name:
            yield one.content.parameters


def _shape(library: Library, name: str, alone: Group) -> str:
    folder = library.checkpoint(name)
    config = {} if folder is None else folder.checkpoint.config
    even = "rankscope" not in config  # heads and streams of a compressed model have a width each
    parts = [f"width {config['d_model']}"] if even and "d_model" in config else []
    if even and "num_heads" in config:
        parts.append(f"{config['num_heads']} heads")
    layers: dict[str, set[int]] = {}
    if folder is not None:
        for site in folder.checkpoint.sites("all"):
            if site.layer is not None:
                layers.setdefault(site.stack, set()).add(site.layer)
    for one in library.about("spectrum", alone):
        for row in one.content.sites:
            if row.site.layer is not None:
                layers.setdefault(row.site.stack, set()).add(row.site.layer)
    parts += [f"{len(found)} {stack} layers" for stack, found in layers.items()]
    return ", ".join(parts)
