"""Names of matrices for readers, and their order."""

from __future__ import annotations

_SCOPES = {"self": "self-attention", "cross": "cross-attention", "group": "group attention"}
_LETTERS = ("q", "k", "v", "o")


def role_name(role: str) -> str:
    """Name of a role.

    >>> role_name("self.q"), role_name("mlp_in")
    ('self-attention Q', 'mlp in')
    """
    scope, _, letter = role.partition(".")
    return f"{_SCOPES.get(scope, scope)} {letter.upper()}" if letter else role.replace("_", " ")


def role_order(role: str) -> tuple[int, int, str]:
    """Key that puts attention first, its matrices as Q, K, V, O.

    >>> sorted(["mlp_in", "cross.q", "self.o", "self.k"], key=role_order)
    ['self.k', 'self.o', 'cross.q', 'mlp_in']
    """
    scope, _, letter = role.partition(".")
    scopes = list(_SCOPES)
    at = scopes.index(scope) if letter and scope in scopes else len(scopes)
    return at, _LETTERS.index(letter) if letter in _LETTERS else len(_LETTERS), role
