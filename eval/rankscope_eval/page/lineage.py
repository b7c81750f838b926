"""Lineage of results: the models that they name, and the descent of one model from another."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rankscope_eval.baselines import BASELINES
from rankscope_eval.page.collect import CheckpointFolder, Findings
from rankscope_eval.page.documents import KINDS, Document


@dataclass(frozen=True)
class Group:
    """A model and everything that was made of it.

    Attributes:
        root: the model that no other on the page became.
        members: its name and those of its descendants, parents first.
    """

    root: str
    members: tuple[str, ...]


class Library:
    """The documents of a page by kind and by model.

    Attributes:
        findings: what was found.
        groups: models, in the order in which they appear.
    """

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self._resolved: dict[str, str] = {}
        self._outs = [normal(one.content.out) for one in self._made() if one.content.out]
        self._made_of = {(normal(one.content.model), normal(one.content.out)) for one in self._made()}
        self.parents = self._parents()
        self.groups = self._groups()

    def of(self, kind: str) -> list[Document]:
        """Documents of a kind, in the order of paths."""
        return [one for one in self.findings.documents if one.kind == kind]

    def about(self, kind: str, group: Group) -> list[Document]:
        """Documents of a kind that speak of one model of a group; parents first."""
        found = [one for one in self.of(kind) if self.resolve(one.content.model) in group.members]
        return sorted(found, key=lambda one: group.members.index(self.resolve(one.content.model)))

    def resolve(self, name: str) -> str:
        """The name under which a model is known here: ``small`` and ``runs/small`` are one, if only one fits."""
        if name not in self._resolved:
            plain = normal(name)
            fits = {out for out in self._outs if out == plain or _tail(out, plain) or _tail(plain, out)}
            if plain not in fits:  # nothing is what it was made of, however it is called
                fits = {out for out in fits if (plain, out) not in self._made_of}
            self._resolved[name] = fits.pop() if len(fits) == 1 else plain
        return self._resolved[name]

    def checkpoint(self, name: str) -> CheckpointFolder | None:
        """The checkpoint of a model, where it lies in the folder."""
        found = [one for one in self.findings.checkpoints if self.resolve(self.name_of(one)) == name]
        return found[0] if len(found) == 1 else None

    def name_of(self, folder: CheckpointFolder) -> str:
        """Name of a checkpoint: its folder's."""
        return self.findings.folder.resolve().name if folder.path == "." else folder.path

    def group_of(self, name: str) -> Group | None:
        """The group that a model belongs to."""
        plain = self.resolve(name)
        return next((group for group in self.groups if plain in group.members), None)

    def depth(self, name: str) -> int:
        """Number of compressions and healings that led to a model, by its name here."""
        depth, seen = 0, {name}
        while name in self.parents and self.parents[name][0] not in seen:
            name, depth = self.parents[name][0], depth + 1
            seen.add(name)
        return depth

    def _made(self) -> list[Document]:
        return [*self.of("compress"), *self.of("heal")]

    def _parents(self) -> dict[str, tuple[str, Document]]:
        parents: dict[str, tuple[str, Document]] = {}
        for one in self._made():
            child, parent = self.resolve(one.content.out), self.resolve(one.content.model)
            if child and child != parent and child not in parents:
                parents[child] = (parent, one)
        return parents

    def _groups(self) -> tuple[Group, ...]:
        names = list(dict.fromkeys(self.resolve(name) for name in self._names() if name))
        members: dict[str, list[str]] = {}
        for name in names:
            members.setdefault(self._root(name), []).append(name)
        return tuple(Group(root, self._family(root, found)) for root, found in members.items())

    def _family(self, root: str, found: list[str]) -> tuple[str, ...]:
        return tuple(sorted(dict.fromkeys([root, *found]), key=self.depth))  # sorting keeps the order within a depth

    def _names(self) -> Iterable[str]:
        for kind in KINDS:
            for one in self.of(kind):
                yield from _models(one)
        for folder in self.findings.checkpoints:
            yield self.name_of(folder)

    def _root(self, name: str) -> str:
        seen = {name}
        while name in self.parents and self.parents[name][0] not in seen:
            name = self.parents[name][0]
            seen.add(name)
        return name


def normal(name: str) -> str:
    """A name without what does not tell models apart.

    >>> normal("./small/"), normal("amazon/chronos-t5-base"), normal("runs//a/../b")
    ('small', 'amazon/chronos-t5-base', 'runs/b')
    """
    return posixpath.normpath(name) if name else ""


def _tail(whole: str, part: str) -> bool:
    return whole.endswith("/" + part)


def _models(document: Document) -> list[str]:
    """Names of the models that a document measures; references of an evaluation are none."""
    content: Any = document.content
    if document.kind == "embed":
        return [row.model for row in content.rows]
    if document.kind in ("compress", "heal"):
        return [content.model, content.out]
    if document.kind in ("eval", "bench"):
        return [row.model for row in content.rows if row.model not in BASELINES]
    if document.kind in ("theory", "sweep"):
        return []
    return [content.model]
