"""Weight matrices of a model: where each is (`Site`), and which of them a list of words selects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from rankscope.errors import OptionError, unknown_choice

Stack = Literal["encoder", "decoder"]
Kind = Literal["attention", "mlp", "embedding", "head"]
_MLP = ("mlp_in", "mlp_gate", "mlp_out")
_HIDDEN_AXIS = {"mlp_in": 0, "mlp_gate": 0, "mlp_out": 1, "patch_in": 0, "patch_out": 1, "head_in": 0, "head_out": 1}


@dataclass(frozen=True)
class Part:
    """Rows of a stored matrix that are one of several matrices kept as one, such as q, k and v.

    Attributes:
        start: first row, in each group.
        width: rows, in each group.
        groups: equal groups that the rows form: 1 where q, k and v follow each other, the number of heads where
            every head has its own q, k and v together.
    """

    start: int
    width: int
    groups: int = 1


@dataclass(frozen=True)
class Site:
    """One weight matrix: its tensor name, stack, layer and role, and how it splits into heads.

    Attributes:
        name: tensor name of the dense weight, ending in ``.weight``; rows are outputs, columns are inputs.
        stack: ``encoder`` or ``decoder``; embeddings count as the encoder's.
        layer: 0-based layer, None outside the layers.
        role: ``self.q`` … ``self.o``, ``cross.q`` …, ``group.q`` … (Chronos-2), ``mlp_in``, ``mlp_gate``,
            ``mlp_out``, ``embedding``, ``patch_in``, ``patch_out``, ``patch_residual``, ``head_in``, ``head_out``,
            ``head_residual``; ``patch_mlp_in`` …, ``channel_mlp_in`` … mix patches or channels (PatchTSMixer).
        heads: number of heads, None outside attention.
        head_width: width of one head, None outside attention and where the heads differ.
        head_axis: axis of the (out, in) weight that splits into heads: 0 for q, k and v, 1 for o.
        uneven: widths of the heads where they differ.
        part: the rows of the stored matrix that are this one; None for all.
        transposed: whether the matrix is stored as (in, out), as GPT-2 does.
    """

    name: str
    stack: Stack
    layer: int | None
    role: str
    heads: int | None = None
    head_width: int | None = None
    head_axis: int | None = None
    uneven: tuple[int, ...] = ()
    part: Part | None = None
    transposed: bool = False

    def shape(self, stored: tuple[int, ...]) -> tuple[int, int]:
        """Shape (out, in) of the matrix that a tensor of shape ``stored`` holds; a convolution is one row per output.

        >>> Site("a.c_attn.weight", "decoder", 0, "self.k", 2, 4, 0, part=Part(8, 8), transposed=True).shape((8, 24))
        (8, 8)
        """
        rows, columns = stored[0], prod(stored[1:])
        if self.transposed:
            rows, columns = columns, rows
        return (self.part.width * self.part.groups if self.part else rows), columns

    def cut(self, stored: Tensor) -> Float[Tensor, "d_out d_in"]:
        """Return the matrix that a stored tensor holds."""
        w = stored.flatten(1)
        if self.transposed:
            w = w.mT
        if self.part is None:
            return w
        start, width = self.part.start, self.part.width
        return w.unflatten(0, (self.part.groups, -1))[:, start : start + width].flatten(0, 1)

    @property
    def head_widths(self) -> tuple[int, ...]:
        """Width of every head, empty outside attention.

        >>> Site("a.q.weight", "encoder", 0, "self.q", 2, 4, 0).head_widths
        (4, 4)
        """
        return self.uneven or (self.head_width or 0,) * (self.heads or 0)

    @property
    def module(self) -> str:
        """Name of the module that holds the weight.

        >>> Site("shared.weight", "encoder", None, "embedding").module
        'shared'
        """
        return self.name.removesuffix(".weight")

    @property
    def block(self) -> str:
        """Name of the attention or the feed-forward block around that module."""
        return self.module.rpartition(".")[0]

    @property
    def hidden_axis(self) -> int | None:
        """Axis of the (out, in) weight whose entries are the hidden units of a feed-forward block; None elsewhere.

        >>> Site("a.mlp.wo.weight", "encoder", 0, "mlp_out").hidden_axis
        1
        """
        return _HIDDEN_AXIS.get(self.role)

    @property
    def kind(self) -> Kind:
        """One of ``attention``, ``mlp``, ``embedding`` and ``head``."""
        if "." in self.role:
            return "attention"
        if self.role.endswith(_MLP):
            return "mlp"
        return "head" if self.role.startswith("head_") else "embedding"


LETTERS = ("q", "k", "v", "o")
_KINDS = ("attention", "mlp", "embedding", "head")
_STACKS = ("encoder", "decoder")
SCOPES = {"self": "self-attention", "cross": "cross-attention", "group": "group attention"}
"""Kinds of attention by their word in a role, and their names in tables."""
SELECTORS: tuple[str, ...] = (*LETTERS, *_KINDS, *_STACKS, *SCOPES, "all")


def select_sites(sites: Sequence[Site], tokens: Sequence[str] | str | None = None) -> tuple[Site, ...]:
    """Keep the sites that the words describe, in their order.

    Words of one sort add up, words of different sorts narrow each other: the matrices (``q``, ``k``, ``v``,
    ``o``, ``attention``, ``mlp``, ``embedding``, ``head``, ``all``), the stack (``encoder``, ``decoder``) and, for
    attention matrices only, what they attend to (``self``, ``cross``, ``group``). Without a word for the
    matrices all attention matrices are meant.

    Raises:
        OptionError: a word is unknown, or nothing is selected.

    >>> q = Site("a.q.weight", "encoder", 0, "self.q", 2, 4, 0)
    >>> wi = Site("a.wi.weight", "encoder", 0, "mlp_in")
    >>> [site.role for site in select_sites([q, wi])]
    ['self.q']
    >>> [site.role for site in select_sites([q, wi], ["q", "mlp"])]
    ['self.q', 'mlp_in']
    """
    if isinstance(tokens, str):
        tokens = tokens.split(",")
    if tokens is not None and not tokens:
        raise OptionError("sites is empty: name matrices, such as attention or q,k, or give None for all of attention.")
    words = [word.strip().lower() for word in tokens or ("attention",)]
    for word in words:
        if word not in SELECTORS:
            raise OptionError(unknown_choice("sites", word, SELECTORS))
    kept = tuple(site for site in sites if _selected(site, words))
    if not kept:
        present = sorted({site.role for site in sites})
        raise OptionError(f"sites {','.join(words)} selects no matrix of this model, which has {', '.join(present)}.")
    return kept


def _selected(site: Site, words: Sequence[str]) -> bool:
    scopes = [word for word in words if word in SCOPES]
    stacks = [word for word in words if word in _STACKS]
    matrices = [word for word in words if word not in SCOPES and word not in _STACKS] or ["attention"]
    if stacks and site.stack not in stacks:
        return False
    scope, _, letter = site.role.partition(".")
    if site.kind == "attention" and scopes and scope not in scopes:
        return False
    return "all" in matrices or site.kind in matrices or (bool(letter) and letter in matrices)
