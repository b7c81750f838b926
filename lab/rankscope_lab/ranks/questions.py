"""Research questions as testable claims, paired by seed.

a. Does linear-ppe's map of the positions raise the rank of the stream?
b. Does a projection block pass rank on more gently than attention?
c. How does the size of a codebook set its rank, and that of what it encodes?
d. What can be cut, and at what loss?
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from rankscope_lab.measure import ModelRanks, Ranks, StreamRanks
from rankscope_lab.measure.record import BETWEEN, INPUT, OUTPUT
from rankscope_lab.measure.sites import ATTENTION, PROJECTION
from rankscope_lab.ranks.runs import CODEBOOK, ENCODERS, SLT, STREAM, TOKENIZERS, RankedRun
from rankscope_lab.statistics import Claim

QUESTIONS = {
    "a": "Does linear-ppe raise the rank of the stream?",
    "b": "Does a projection block pass rank on more gently than attention?",
    "c": "How does codebook size set rank?",
    "d": "What compresses, and at what loss?",
}
EFFECTIVE, CENTRED = "effective rank", "effective rank, centred"

POSITION_PAIRS = (
    ("linear-ppe", "linear"),
    ("linear-ppe", "linear-scaled"),
    ("linear-ppe", "linear-rotated"),
    ("linear-scaled", "linear"),
    ("linear-rotated", "linear"),
)
"""The map is compared with no map, and with what may be all there is to it: smaller positions, rotated positions."""
LAYER_PAIRS = (
    ("slt-additive", "patchtst"),
    ("slt", "patchtst-mult"),
    ("projections", "patchtst-mult"),
    ("slt", "patchtst"),
    ("slt-bottom", "slt"),
    ("slt-middle", "slt"),
)
"""Models whose blocks differ in kind at some depth; the first three differ in nothing else."""

Runs = Mapping[str, Mapping[int, RankedRun]]
"""Variant → seed → run, of one setting."""
Measure = Callable[[StreamRanks], float]
_Stacks = Mapping[int, list[dict[str, StreamRanks]]]
_Chosen = tuple[list[int], _Stacks]
"""Depths, and the blocks of every seed."""


def by_setting(runs: Sequence[RankedRun], study: str) -> dict[str, dict[str, dict[int, RankedRun]]]:
    """Setting → variant → seed → run."""
    found: dict[str, dict[str, dict[int, RankedRun]]] = {}
    for run in runs:
        if run.study == study:
            found.setdefault(run.setting, {}).setdefault(run.variant, {})[run.seed] = run
    return found


def measures(eps: Sequence[str]) -> dict[str, Measure]:
    """Measures of a stream by name."""
    found: dict[str, Measure] = {
        EFFECTIVE: lambda one: one.ranks.effective_rank,
        CENTRED: lambda one: one.centred.effective_rank,
    }
    return found | {f"rank at {level}": _at(level) for level in eps}


def claims(runs: Sequence[RankedRun], eps: Sequence[str]) -> list[Claim]:
    """Return all claims of questions a to c that the runs allow to test."""
    found: list[Claim] = []
    for setting, variants in by_setting(runs, ENCODERS).items():
        found += position_claims(setting, variants, eps)
    for setting, variants in by_setting(runs, SLT).items():
        found += layer_claims(setting, variants, eps)
    for setting, variants in by_setting(runs, TOKENIZERS).items():
        found += codebook_claims(setting, variants, eps)
    return found


def position_claims(setting: str, runs: Runs, eps: Sequence[str]) -> Iterator[Claim]:
    """Question a: at each depth of the stream, one encoder's rank above another's.

    Of a seed whose two runs were cut after different epochs nothing is compared.
    """
    for first, second in POSITION_PAIRS:
        one, other = runs.get(first, {}), runs.get(second, {})
        alike = [seed for seed in one.keys() & other.keys() if one[seed].stopped == other[seed].stopped]
        sides = [_depths({seed: side[seed] for seed in alike}) for side in (one, other)]
        for depth in sorted(sides[0].keys() & sides[1].keys()):
            for name, measure in measures(eps).items():
                values, others = ({seed: measure(one) for seed, one in side[depth].items()} for side in sides)
                text = f"{first} has a higher rank than {second} at depth {depth}"
                yield Claim("a", setting, text, name, first, second, values, others)


def layer_claims(setting: str, runs: Runs, eps: Sequence[str]) -> Iterator[Claim]:
    """Question b: where one block attends and another projects, attention changes the rank by more.

    Blocks at one depth of two models, and attention beside the mean of the projections of one model. The change is
    |log2(rank out / rank in)|, of the whole block and of its mixing half alone.
    """
    stacks = {name: _stacks(by_seed) for name, by_seed in runs.items()}
    for first, second in LAYER_PAIRS:
        sides = stacks.get(first), stacks.get(second)
        if not sides[0] or not sides[1]:
            continue
        for depth, blocks in enumerate(zip(*(next(iter(side.values())) for side in sides if side), strict=False)):
            kinds = [block[INPUT].kind for block in blocks]
            if sorted(kinds) == [ATTENTION, PROJECTION]:
                named = dict(zip(kinds, zip((first, second), sides, strict=True), strict=True))
                attends, projects = named[ATTENTION], named[PROJECTION]
                text = f"attention in {attends[0]} changes rank more than projection in {projects[0]}, depth {depth}"
                changed = ([depth], attends[1] or {}), ([depth], projects[1] or {})
                yield from _changes(Claim("b", setting, text, "", attends[0], projects[0], {}, {}), *changed, eps)
    for name, side in stacks.items():
        kinds = [block[INPUT].kind for block in next(iter(side.values()))] if side else []
        places = {kind: [depth for depth, one in enumerate(kinds) if one == kind] for kind in (ATTENTION, PROJECTION)}
        if all(places.values()):
            text = f"inside {name} attention changes rank more than projection"
            claim = Claim("b", setting, text, "", f"{name} attention", f"{name} projection", {}, {})
            yield from _changes(claim, (places[ATTENTION], side), (places[PROJECTION], side), eps)


def _changes(claim: Claim, attends: _Chosen, projects: _Chosen, eps: Sequence[str]) -> Iterator[Claim]:
    for place, what in ((OUTPUT, "block"), (BETWEEN, "mixing half")):
        for name, measure in measures(eps).items():
            values, others = (
                {
                    seed: sum(abs(change(blocks[depth], place, measure)) for depth in depths) / len(depths)
                    for seed, blocks in side.items()
                }
                for depths, side in (attends, projects)
            )
            text, named = f"{claim.text}: {what}", f"|log2 change| of {name}"
            yield replace(claim, text=text, measure=named, values=values, others=others)


def codebook_claims(setting: str, runs: Runs, eps: Sequence[str]) -> Iterator[Claim]:
    """Question c: the larger of two codebooks has the higher rank, and so has what it encodes; neighbours, and ends."""
    sizes = sorted((name for name in runs if name.isdigit()), key=int)
    ends = [(sizes[0], sizes[-1])] if len(sizes) > 2 else []
    for small, large in [*pairwise(sizes), *ends]:
        for part in (CODEBOOK, STREAM):
            for name, measure in _summaries(eps).items():
                values, others = (
                    {seed: measure(run.spectra[part]) for seed, run in runs[size].items() if part in run.spectra}
                    for size in (large, small)
                )
                text = f"the {part} of {large} codes has a higher rank than that of {small}"
                yield Claim("c", setting, text, name, large, small, values, others)


def change(block: Mapping[str, StreamRanks], place: str, measure: Measure) -> float:
    """Return log2 of output rank / input rank; NaN if either is zero."""
    before, after = measure(block[INPUT]), measure(block[place])
    return math.log2(after / before) if before > 0 and after > 0 else math.nan


def stream_of(ranks: ModelRanks) -> tuple[StreamRanks, ...]:
    """Return the activations of the first stack by depth: the input of each layer, and the output of the last."""
    stacks = [one.stack for one in ranks.streams]
    return (*ranks.stream(INPUT, stacks[0]), *ranks.stream(OUTPUT, stacks[0])) if stacks else ()


def _depths(runs: Mapping[int, RankedRun]) -> dict[int, dict[int, StreamRanks]]:
    """Depth → seed → stream."""
    found: dict[int, dict[int, StreamRanks]] = {}
    for seed, run in runs.items():
        for depth, one in enumerate(stream_of(run.ranks) if run.ranks else ()):
            found.setdefault(depth, {})[seed] = one
    return found


def _stacks(runs: Mapping[int, RankedRun]) -> _Stacks:
    return {seed: blocks for seed, run in runs.items() if (blocks := _blocks(run.ranks))}


def _blocks(ranks: ModelRanks | None) -> list[dict[str, StreamRanks]]:
    """Input of each block, the stream between its halves, and its output."""
    if ranks is None or not ranks.streams:
        return []
    stream = stream_of(ranks)
    between = {one.layer: one for one in ranks.stream(BETWEEN, stream[0].stack)}
    return [{INPUT: a, BETWEEN: between.get(a.layer, b), OUTPUT: b} for a, b in pairwise(stream)]


def _at(level: str) -> Measure:
    return lambda one: float(one.ranks.eps_ranks[level])


def _summaries(eps: Sequence[str]) -> dict[str, Callable[[Ranks], float]]:
    def at(level: str) -> Callable[[Ranks], float]:
        return lambda one: float(one.eps_ranks[level])

    return {EFFECTIVE: lambda one: one.effective_rank, **{f"rank at {level}": at(level) for level in eps}}
