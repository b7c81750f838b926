"""Which matrices of a checkpoint are cut together, and what a method cannot cut."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.checkpoints import Checkpoint
from rankscope.compress.calibration import Calibration, regularised
from rankscope.compress.groups import JOINT, Attention, Group, Single
from rankscope.compress.methods import METHODS
from rankscope.errors import OptionError
from rankscope.families import Site
from rankscope.measure.cache import cached_tokens

UNSHOWN = 1e-3
"""Share of the mean energy that every direction gets where there are fewer positions than directions: what was not
shown is then cut as plain SVD cuts it. It is far above what rounding in float32 leaves there."""


def make_groups(
    source: Checkpoint,
    sites: Sequence[Site],
    method: str,
    calibration: Calibration | None,
    *,
    eps: float | None = None,
    seed: int = 0,
) -> list[Group]:
    """Sort the selected sites into groups.

    With ``joint`` the MLP's matrices, which have no partner, are whitened; so are queries and keys that rotary
    positions turn: their product is another one for every distance, and a head of another width could not be turned.
    """
    if method == JOINT:
        return _joint_groups(source, sites, calibration, seed)
    return [_single(source, site, method, calibration, eps, seed) for site in sites]


def _single(
    source: Checkpoint, site: Site, method: str, calibration: Calibration | None, eps: float | None, seed: int
) -> Single:
    now = source.factored.get(site.module)
    stored = None if now is None else (now.inner, source.stored(site))
    moments = calibration.of(site) if METHODS[method].calibrated and calibration is not None else None
    if moments is not None and moments.tokens < min(source.shape(site)):
        moments = regularised(moments, UNSHOWN)
    return Single(site, method, moments, stored, eps, seed)


def check_method(source: Checkpoint, sites: Sequence[Site], method: str) -> None:
    """Refuse what a method cannot do, before anything long begins.

    Raises:
        OptionError: ``joint`` with one matrix of a pair only, or with an attention that is factored.
    """
    if method != JOINT:
        return
    for module, letters in _attentions(source, sites).items():
        for pair in _pairs(letters):
            if not set(pair) <= letters:
                raise OptionError(
                    f"method joint cuts {pair[0]} and {pair[1]} of a head together: select both, or neither."
                )
        for letter in (letter for pair in _pairs(letters) for letter in pair):
            if f"{module}.{letter}" in source.factored:
                raise OptionError(
                    f"{source.source}: {module}.{letter} is stored in two factors, method joint cuts whole heads: use "
                    "method whitened or svd, or start from the dense original."
                )


def _joint_groups(source: Checkpoint, sites: Sequence[Site], calibration: Calibration | None, seed: int) -> list[Group]:
    assert calibration is not None
    groups: list[Group] = []
    everything = {site.module: site for site in source.sites(["attention"])}
    for module, letters in _attentions(source, sites).items():
        q, k, v, o = (everything[f"{module}.{letter}"] for letter in "qkvo")
        moments = {letter: calibration.of(site) for letter, site in (("q", q), ("k", k), ("o", o))}
        groups.append(Attention(module, q, k, v, o, moments, _pairs(letters), cached_tokens(source, q)))
    others = [site for site in sites if site.kind != "attention" or _turned(source, site)]
    return [*groups, *(_single(source, site, "whitened", calibration, None, seed) for site in others)]


def _turned(source: Checkpoint, site: Site) -> bool:
    """Whether rotary positions turn what the matrix puts out."""
    scope, _, letter = site.role.partition(".")
    return scope in source.family.rotary and letter in ("q", "k")


def _attentions(source: Checkpoint, sites: Sequence[Site]) -> dict[str, set[str]]:
    """Letters of the matrices that are cut in pairs, by attention."""
    found: dict[str, set[str]] = {}
    for site in sites:
        if site.kind == "attention" and not _turned(source, site):
            found.setdefault(site.module.rpartition(".")[0], set()).add(site.role[-1])
    return found


def _pairs(letters: set[str]) -> tuple[str, ...]:
    return tuple(pair for pair in ("qk", "vo") if set(pair) & letters)
