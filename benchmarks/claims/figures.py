"""Figures and theorems of the rank paper: what the pages quote of the results that the figures are drawn from."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from claims.intervals import span
from claims.ranks import encoder_queries
from claims.records import DRAWN, Block, Claim, Document, Prose, Result
from claims.scores import CARDS
from claims.table2 import judged

PAGE, BOUNDS, BENCHMARKS = "docs/figures.md", "docs/theory/bounds.md", "docs/benchmarks.md"


def kept(name: str, command: str, ending: str = "json") -> Result:
    """A result that a figure is drawn from, as it was put into the package of the figures."""
    path = f"{DRAWN}/{name}.{ending}"
    return Result(f"figures-{name}", command, minutes=60, older=True, path=path, by_hand=True)


RESULTS: tuple[Result, ...] = (
    *(kept(one, f"rankscope sweep {one} --out DIR") for one in ("width", "patch", "chebyshev", "heads")),
    kept("text_width", "rankscope standin t5 --text FILE --width W --layers 4 --steps 800 --out DIR"),
    kept("head_angles", "rankscope figures 14 --data DIR --out DIR", "parquet"),
    kept("spectra", "python benchmarks/gpu/bundled.py", "parquet"),
    *(kept(one, f"rankscope theory {one} --out FILE.json") for one in ("f1", "f2", "f3")),
)


def listed(field: str, count: int, spec: str = ".0f") -> str:
    """Words for as many numbers of a list: ``{rank[0]:.0f}, {rank[1]:.0f}``."""
    return ", ".join(f"{{{field}[{at}]:{spec}}}" for at in range(count))


def embedded(found: Document) -> dict[str, list[int]]:
    """ε-ranks of embedded sinusoids at 0.01, by patch size."""
    corpora = [one for row in found["points"] for one in row["ranks"]["embeddings"] if one["matrix"] == "corpus"]
    return {"rank": [one["eps_ranks"]["0.01"] for one in corpora]}


def swept(found: Document) -> dict[str, list[float]]:
    """Mean ε-ranks of W_Q by point of a sweep, absolute and over the width, and of its heads."""
    points = [(row["config"]["model"]["d_model"], row["ranks"]) for row in found["points"]]
    ranks = {name: [one["mean_ranks"]["all"][eps] for _, one in points] for name, eps in EPS.items()}
    return {
        **ranks,
        "share": [one["mean_ranks"]["all"]["0.1"] / width for width, one in points],
        "fine_share": [one["mean_ranks"]["all"]["0.01"] / width for width, one in points],
        "head": [
            fmean(rank for group in one["head_ranks"].values() for layer in group["0.1"] for rank in layer)
            for _, one in points
        ],
    }


EPS = {"rank": "0.1", "middle": "0.05", "fine": "0.01"}


def grows(ranks: Sequence[float]) -> bool:
    """Whether every rank is above the one before."""
    return all(one < other for one, other in pairwise(ranks))


def vocabularies(found: Document) -> Document:
    """Ranks over those of fixed vocabularies, and at rank 2 of the matrices that stayed at random."""
    layers = found["points"][1]["ranks"]["layer_ranks"]
    stayed = [layers["encoder.self"]["0.1"][-1], *layers["decoder.cross"]["0.1"]]
    return {**swept(found), "stayed": span(stayed)}


def grows_slowly(found: Document) -> bool:
    """Whether ranks grow with the vocabulary's from 4 on, at ε from 0.05 but not at 0.01."""
    ranks = swept(found)
    return grows(ranks["rank"][2:]) and grows(ranks["middle"][2:]) and not grows(ranks["fine"][2:])


def queries(*found: Document) -> Document:
    """W_Q of the encoders of the bundled models, by their short names."""
    return dict(zip(("t5", "bolt", "two"), map(encoder_queries, found), strict=True))


def by_design(found: Document) -> Document:
    """Times of low-rank designs over stock's, here and in the paper, and sizes by its schedule over twelve layers."""
    rows = [row for row in found["rows"] if row["paper"]]
    rows = [row for row in rows if "time" in row]  # of one seed
    here, there = [row["time"]["32"]["median"] for row in rows], [row["paper"]["time"] for row in rows]
    sizes = [
        fmean(math.ceil(row["paper"]["r0"] * (1 + i) ** row["paper"]["alpha"]) for i in range(12)) / 64 for row in rows
    ]
    spans = {**span(here), "paper_least": min(there), "paper_most": max(there)}
    return {**spans, "paper": there, "sizes": sizes}


def on_the_front(found: Document) -> bool:
    """Whether forms of Chronos-Bolt, and none of Chronos-T5, have a WQL that no faster model reaches."""
    rows = [(row["milliseconds_per_series"], row["WQL"], row["label"]) for row in found["rows"]]
    front = [label for time, score, label in rows if all(time <= t or score < s for t, s, _ in rows)]
    bolt = {label.partition(":")[0] for label in front if label.startswith("bundled")}
    return len(bolt) == 2 and all(label.startswith("bundled-bolt") for label in bolt)


def sketches(found: Document) -> Document:
    """Rank that sparse sketches are worth by number of heads (``h16``), and the exponent over it."""
    worth = {f"h{h}": median(row) for h, row in zip(found["heads"], found["sparse_index"], strict=True)}
    return {**found, **worth}


def sketches_agree(found: Document) -> bool:
    """Whether sparse and dense sketches of 16 heads and more are worth the same rank within 5 %."""
    pairs = zip(found["heads"], found["sparse_index"], found["dense_index"], strict=True)
    return all(abs(median(one) / median(other) - 1) < 0.05 for h, one, other in pairs if h >= 16)


def outputs(found: Document) -> Document:
    """Mean ranks of the output by number of heads: at the second ε, and the span at the first."""
    seeds = found["rank_out"]
    means = [[fmean(seed[h][e] for seed in seeds) for h in range(len(found["heads"]))] for e in (0, 1)]
    ranks = {f"h{h}": rank for h, rank in zip(found["heads"], means[1], strict=True)}
    return {**ranks, "input": found["rank_in"][1], "coarse": span(means[0])}


def queries_by_step(found: Document) -> dict[int, list[list[float]]]:
    """Singular values of the encoder's W_Q by step, a list per layer."""
    values: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in found["rows"]:
        if (row["stack"], row["role"]) == ("encoder", "self.q"):
            values[row["step"]][row["layer"]].append(row["sigma"])
    return {step: list(layers.values()) for step, layers in values.items()}


def middle(sigma: list[float]) -> float:
    """Median singular value over the largest."""
    return median(sigma) / max(sigma)


def tenth_rank(sigma: list[float]) -> int:
    """Number of singular values above a tenth of the largest."""
    return sum(one > 0.1 * max(sigma) for one in sigma)


def growth(found: Document) -> Document:
    """Of the encoder's W_Q by step, over the layers: largest singular value, the median over it, and 0.1-rank."""
    made: Document = {}
    for step, layers in queries_by_step(found).items():
        largest = [max(one) for one in layers]
        middles, ranks = list(map(middle, layers)), list(map(tenth_rank, layers))
        made[f"s{step}"] = {
            "low": min(largest),
            "high": max(largest),
            **span(middles),
            "rank": span(ranks),
        }
    return made


def fall_rise_fall(found: Document) -> bool:
    """Whether the median over the largest and the 0.1-rank fall, rise and fall again in every layer."""
    by_step = queries_by_step(found)
    phases = zip(*(by_step[step] for step in (0, 112, 2251, 10880)), strict=True)
    measured = [[of(one) for one in layer] for layer in phases for of in (middle, tenth_rank)]
    return all(start > low and low < high and high > end for start, low, high, end in measured)


def angles(found: Document) -> dict[str, dict[str, float]]:
    """Mean angle between rows of W_Q, in degrees, within a head and across heads: least and most over the models."""
    sums: dict[tuple[str, bool], list[float]] = defaultdict(list)
    sizes = {row["model"]: 1 + row["row"] for row in found["rows"]}
    for row in found["rows"]:
        width = sizes[row["model"]] // row["heads"]
        for column, tenths in enumerate(row["tenths"], row["row"] + 1):
            sums[row["model"], row["row"] // width == column // width].append(tenths / 10)
    means = {
        name: [fmean(of) for (_, same), of in sums.items() if same is inside]
        for name, inside in (("within", True), ("across", False))
    }
    return {name: span(of) for name, of in means.items()}


def tables(bolt: Document, t5: Document) -> dict[str, float]:
    """Relative WQL of quoted cells of both Table 2s, as the table of the benchmarks has them."""
    return {
        "half": judged(bolt, "svd", 0.5)["relative_WQL"],
        "quarter": judged(bolt, "svd", 0.25)["relative_WQL"],
        "t5": judged(t5, "svd", 0.25)["relative_WQL"],
        "t5_joint": judged(t5, "joint", 0.15)["relative_WQL"],
        "joint": judged(bolt, "joint", 0.15)["relative_WQL"],
        "healed": judged(bolt, "joint+healed", 0.15)["relative_WQL"],
    }


def slopes(truncation: Document, reached: Document) -> str:
    """Fitted exponents of Fig. 9 and 10, with their intervals."""
    small, large = (one["slope"] for one in truncation["readings"])
    rows = {
        r"Fig. 9, error over $\sigma_{r+1}$, $\sigma_d=10^{-5}$": (small, 3),
        r"Fig. 9, $\sigma_d=e^{-5}$": (large, 3),
        "Fig. 9, error over $d$": (truncation["width"]["slope"], 3),
        "Fig. 10, rank reached over $h$": (reached["slope"], 2),
    }
    lines = ["| | exponent | 95 % |", "|---|---|---|"]
    for name, (slope, digits) in rows.items():
        low, high = (f"{slope[end]:.{digits}f}" for end in ("low", "high"))
        lines.append(f"| {name} | {slope['value']:.{digits}f} | {low} to {high} |")
    return "\n".join(lines)


def theory_holds(found: Document) -> bool:
    """Whether 1 over σ_{r+1} and ½ over d lie in the intervals of the fits."""
    fits = [(one["slope"], 1.0) for one in found["readings"]] + [(found["width"]["slope"], 0.5)]
    return all(slope["low"] <= value <= slope["high"] for slope, value in fits)


def _of(page: str, name: str, words: str, values: Any = lambda *found: found[0], **more: Any) -> Prose:
    return Prose(page, f"figures-{name}", words, values, **more)


CLAIMS: tuple[Claim, ...] = (
    Prose(
        PAGE,
        "scores-bundled",
        "{t5:,} and {bolt:,} steps",
        lambda t5, bolt: {"t5": t5["training"]["steps"], "bolt": bolt["training"]["steps"]},
        also=("scores-bundled-bolt",),
    ),
    _of(
        PAGE,
        "patch",
        f"at ε = 0.01: {listed('rank', 6)} of 192 for patches of 1, 2, 4, 8, 16, 32 values",
        embedded,
        holds=lambda found: grows(embedded(found)["rank"]),
    ),
    _of(
        PAGE,
        "width",
        f"Mean 0.1-rank of W_Q {listed('rank', 4)} at d = 32, 64, 128, 256: over the width it falls from "
        "{share[0]:.2f} to {share[3]:.2f}. At ε = 0.01 it still follows the width ({fine_share[3]:.2f} of it at 256)",
        swept,
        holds=lambda found: grows(swept(found)["share"][::-1]),
    ),
    _of(
        PAGE,
        "text_width",
        f"{listed('rank', 3)} for T5 of text of widths 32, 64, 128, or {listed('share', 3, '.2f')} of the width: more "
        "than in Chronos at every width, but not in proportion",
        lambda text, series: swept(text),
        also=("figures-width",),
        holds=lambda text, series: (
            grows(swept(text)["share"][::-1])
            and all(one > other for one, other in zip(swept(text)["share"], swept(series)["share"], strict=False))
        ),
    ),
    _of(
        PAGE,
        "chebyshev",
        "Mean 0.1-rank of W_Q {rank[0]:.1f} at vocabulary rank 1, then {rank[1]:.0f}, {rank[2]:.1f}, {rank[3]:.1f}, "
        "{rank[4]:.1f}, {rank[5]:.1f} at 2, 4, 8, 16, 32. From 4 on it grows slowly at ε ≥ 0.05 and not at ε = 0.01, "
        "one run each. At rank 2 W_Q of cross-attention and of the encoder's last layer have {stayed[least]} to "
        "{stayed[most]} of 192",
        vocabularies,
        holds=grows_slowly,
    ),
    Prose(
        PAGE,
        f"ranks-{CARDS[0]}",
        f"0.1-rank of the encoder's W_Q: {listed('t5[rank]', 4)} of 256 in Chronos-T5 ({{t5[start][least]}} or "
        f"{{t5[start][most]}} before training), which neither is low nor grows; {listed('bolt[rank]', 4)} in "
        f"Chronos-Bolt and {listed('two[rank]', 6)} in Chronos-2, which is both",
        queries,
        also=tuple(f"ranks-{one}" for one in CARDS[1:]),
        holds=lambda *found: [one["grow"] for one in queries(*found).values()] == [False, True, True],
    ),
    Prose(
        PAGE,
        "by-design",
        "take {least:.2f} to {most:.2f} of the time (the paper: {paper_least:.2f} to {paper_most:.2f}",
        by_design,
        holds=lambda found: by_design(found)["most"] < 1,
        moves=0.1,
    ),
    Prose(
        PAGE,
        "peers",
        "Chronos-Bolt, as it is and compressed, is on the front of the bundled models and local methods; our "
        "Chronos-T5 is not.",
        holds=on_the_front,
    ),
    _of(PAGE, "f1", "Slopes 1 over σ_{{r+1}} and ½ over d lie within", holds=theory_holds),
    _of(
        PAGE,
        "f2",
        "is worth rank {h1:.0f} at h = 1, {h16:.0f} at h = 16 and {h128:.0f} at h = 128: it reaches far beyond the "
        "sketch of one head. The rank grows as h to the power {slope[value]:.2f} (95 %: {slope[low]:.2f} to "
        "{slope[high]:.2f})",
        sketches,
        holds=lambda found: found["slope"]["low"] > 1,
    ),
    _of(
        PAGE,
        "f3",
        "Mean rank of Y at ε = 10⁻³: {h1:.0f} at h = 1, {h16:.0f} at h = 16, {h128:.0f} at h = 128 (X: {input})",
        outputs,
        holds=lambda found: found["monotone"] == [False, True, True, True],
    ),
    _of(
        PAGE,
        "spectra",
        "Largest singular value of the encoder's W_Q: {s0[low]:.3f} to {s0[high]:.3f} at the start, {s112[low]:.2f} to "
        "{s112[high]:.2f} after 112 steps, {s2251[low]:.1f} to {s2251[high]:.1f} after 2,251, {s10880[low]:.1f} to "
        "{s10880[high]:.1f} after 10,880. The median falls from {s0[least]:.2f} to {s0[most]:.2f} of σ₁ to "
        "{s112[least]:.2f} to {s112[most]:.2f} after 112 steps, rises to {s2251[least]:.2f} to {s2251[most]:.2f} by "
        "step 2,251, where the paper's small ones stay behind, and falls again, to {s10880[least]:.2f} to "
        "{s10880[most]:.2f}",
        growth,
        holds=fall_rise_fall,
    ),
    Prose(
        BENCHMARKS,
        "figures-spectra",
        "its ranks fell to {s112[rank][least]} to {s112[rank][most]} in 112 steps, were {s2251[rank][least]} to "
        "{s2251[rank][most]} after 2,251, and have been falling since",
        growth,
        holds=fall_rise_fall,
    ),
    _of(
        PAGE,
        "head_angles",
        "Mean angle between rows of W_Q, h = 3 to 96: {within[least]:.0f}° to {within[most]:.0f}° within a head, "
        "{across[least]:.0f}° to {across[most]:.0f}° across heads",
        angles,
    ),
    _of(
        PAGE,
        "heads",
        f"Mean 0.1-rank of W_Q {listed('rank', 6)} of 192 at h = 3, 6, 12, 24, 48, 96; of one head's rows "
        f"{listed('head', 6)}",
        swept,
        holds=lambda found: grows(swept(found)["rank"]) and grows(swept(found)["head"][::-1]),
    ),
    Prose(
        PAGE,
        "table2-bundled-bolt",
        "multiplies WQL by {half:.2f} at a size of 0.5 and {quarter:.2f} at 0.25 (Bolt), and {t5:.2f} at 0.25 "
        "(Chronos-T5)",
        tables,
        also=("table2-bundled",),
    ),
    Prose(
        PAGE,
        "table2-bundled-bolt",
        "`joint` at 0.15 multiplies it by {t5_joint:.3f} for Chronos-T5 and by {joint:.3f} for Bolt, [healed by "
        "{healed:.3f}]",
        tables,
        also=("table2-bundled",),
    ),
    Block(BOUNDS, "slopes", ("figures-f1", "figures-f2"), slopes),
    _of(
        BOUNDS,
        "f1",
        "At all ranks they are {readings[0][slope_all][value]:.2f} and {readings[1][slope_all][value]:.2f}: the error "
        "is a Frobenius norm, and near $r=d-1$ it has fewer values left to sum; over the norm of all that is cut they "
        "are {readings[0][slope_tail][value]:.2f} and {readings[1][slope_tail][value]:.2f}.",
    ),
    _of(BOUNDS, "f2", "sparse and dense sketches agree", holds=sketches_agree),
    _of(
        BOUNDS,
        "f3",
        "they move between {coarse[least]:.0f} and {coarse[most]:.0f} without order",
        outputs,
        holds=lambda found: found["monotone"] == [False, True, True, True],
    ),
    _of("docs/reference/agreement.md", "f2", "sketches gain rank as h^{slope[value]:.2f}, not h (10)"),
    Prose(
        BENCHMARKS,
        "by-design",
        "over twelve layers the schedule gives {sizes[0]:.3f}, {sizes[1]:.3f} and {sizes[2]:.3f}",
        by_design,
    ),
)
