"""Which sites a list of words selects."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.errors import OptionError, unknown_choice
from rankscope.families._record import Site

_LETTERS = ("q", "k", "v", "o")
_KINDS = ("attention", "mlp", "embedding")
_STACKS = ("encoder", "decoder")
_SCOPES = ("self", "cross", "group")
SELECTORS: tuple[str, ...] = (*_LETTERS, *_KINDS, *_STACKS, *_SCOPES, "all")


def select_sites(sites: Sequence[Site], tokens: Sequence[str] | str | None = None) -> tuple[Site, ...]:
    """Keep the sites that the words describe, in their order.

    Words of one sort add up, words of different sorts narrow each other: the matrices (``q``, ``k``, ``v``,
    ``o``, ``attention``, ``mlp``, ``embedding``, ``all``), the stack (``encoder``, ``decoder``) and, for
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
    scopes = [word for word in words if word in _SCOPES]
    stacks = [word for word in words if word in _STACKS]
    matrices = [word for word in words if word not in _SCOPES and word not in _STACKS] or ["attention"]
    if stacks and site.stack not in stacks:
        return False
    scope, _, letter = site.role.partition(".")
    if site.kind == "attention" and scopes and scope not in scopes:
        return False
    return "all" in matrices or site.kind in matrices or (bool(letter) and letter in matrices)
