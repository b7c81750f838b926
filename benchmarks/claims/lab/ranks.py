"""Ranks that encoders and kinds of layers leave, and what cutting costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from claims.intervals import Span, span
from claims.lab.encoders import loss
from claims.lab.shared import ENCODERS, RANKS, only, pick
from claims.records import Claim, Document, Prose, table

GENERATED, ETTH1 = "C4 N512 d64 nll 300 epochs", "ETTh1 d56 nll 300 epochs"
LEVELS = ("0.1", "0.05", "0.01")
POSITIONED = ("linear", "linear-scaled", "linear-rotated", "linear-ppe")
LAYERS = {
    ("ETTh1", "multiplied"): ("slt", "projections", "patchtst-mult"),
    ("ETTh1", "added"): ("slt-additive", "patchtst"),
    ("ETTh2", "multiplied"): ("slt",),
    ("ETTh2", "added"): ("patchtst",),
}
"""Table and kind of positions → models."""
RELEASED, FIELD = "{}-released-e10", "{}-field-e6"
SHARES = (0.5, 0.25, 0.125, 0.0625)
LEARNT = ("concat", "linear", "linear-ortho", "linear-ppe", "linear-rotated", "linear-scaled", "mlp")
"""Encoders that learn, `sum` left out."""


def stream(found: Document, setting: str, variant: str, depth: int) -> Document:
    """Ranks of the stream after so many blocks."""
    return only(found["streams"], setting=setting, variant=variant, depth=depth)


def mark(found: Document, setting: str, variant: str, depth: int, measure: str) -> str:
    """† where the difference from `linear` is clear, ‡ where it is before adjustment, of one sign in all seeds."""
    claim = f"{variant} has a higher rank than linear at depth {depth}"
    for one in pick(found["findings"], setting=setting, claim=claim, measure=measure):
        if one["verdict"] != "unclear":
            return " †"
        if one["p"] < 0.005 and one["above"] in (0, one["pairs"]):
            return " ‡"
    return ""


def by_positions(setting: str, variants: Sequence[str]) -> Callable[[Document], str]:
    """Ranks of the stream by depth and encoder, marked where they differ from those of `linear`."""

    def render(found: Document) -> str:
        rows = []
        for depth in range(4):
            for variant in variants:
                one = stream(found, setting, variant, depth)
                values = {"effective rank": one["effective"], "effective rank, centred": one["centred"]}
                values |= {f"rank at {level}": one["eps_ranks"][level] for level in LEVELS}
                cells = [f"{value:.1f}{mark(found, setting, variant, depth, name)}" for name, value in values.items()]
                rows.append([str(depth) if variant == variants[0] else "", f"`{variant}`", *cells])
        return table(["depth", "encoder", "effective rank, all", "centred", *(f"ε = {e}" for e in LEVELS)], rows)

    return render


def by_blocks(found: Document) -> str:
    """Ranks of the stream by blocks passed, table, positions and model."""
    rows = []
    for (data, positions), models in LAYERS.items():
        for model in models:
            cells = []
            for depth in range(4):
                one = stream(found, RELEASED.format(data), model, depth)
                ranks = ", ".join(f"{one['eps_ranks'][level]:.0f}" for level in ("0.1", "0.01"))
                cells.append(f"{one['effective']:.1f} ({one['centred']:.1f}), {ranks}")
            rows.append([f"{data}, {positions}" if model == models[0] else "", f"`{model}`", *cells])
    return table(["table, positions", "model", *"0123"], rows)


def at_the_input(found: Document) -> Document:
    """Effective ranks before the first block."""
    whole = {variant: stream(found, GENERATED, variant, 0) for variant in POSITIONED}
    return {
        "turned": whole["linear-rotated"]["effective"],
        "plain": whole["linear"]["effective"],
        "lost": whole["linear"]["centred"] - whole["linear-scaled"]["centred"],
    }


def turning_adds(found: Document) -> bool:
    """True if both effects at the input are clear, and `linear-ppe` is below the two controls about the mean."""
    centred = {variant: stream(found, GENERATED, variant, 0)["centred"] for variant in POSITIONED}
    clear = [
        mark(found, GENERATED, variant, 0, measure)
        for variant, measure in (
            ("linear-rotated", "effective rank"),
            ("linear-scaled", "effective rank, centred"),
        )
    ]
    return clear == [" †", " †"] and centred["linear-ppe"] == min(centred.values())


def more_count(found: Document) -> bool:
    """True if after one and two blocks all three have more directions at 0.05 than `linear`."""
    ranks = [
        [stream(found, GENERATED, variant, depth)["eps_ranks"]["0.05"] for variant in POSITIONED] for depth in (1, 2)
    ]
    return all(min(others) > plain for plain, *others in ranks)


def queries(found: Document) -> Document:
    """Effective rank of the first layer's queries by encoder."""
    rows = pick(found["queries"], setting=GENERATED)
    return {row["variant"].removeprefix("linear-"): row["effective"] for row in rows}


def after_one(found: Document) -> Document:
    """Effective ranks after the first block on ETTh1: models with the same positions, and with the same blocks."""
    setting = RELEASED.format("ETTh1")
    ranks = {
        model: stream(found, setting, model, 1)["effective"]
        for (data, _), models in LAYERS.items()
        for model in models
        if data == "ETTh1"
    }
    alike = [[ranks[one] for one in models] for (data, _), models in LAYERS.items() if data == "ETTh1"]
    return {
        "positions": 100 * max(max(values) / min(values) - 1 for values in alike),
        "blocks": span([ranks["slt"] / ranks["slt-additive"], ranks["patchtst-mult"] / ranks["patchtst"]]),
    }


def kept(found: Document, setting: str, model: str, measure: str = "effective") -> float:
    """Rank after the last block over that before it, in percent."""
    before, after = (stream(found, setting, model, depth)[measure] for depth in (2, 3))
    share: float = 100 * after / before
    return share


def last_block(found: Document) -> Document:
    """What the last block leaves of the effective rank, in percent."""
    tables = ("ETTh1", "ETTh2")
    published = [(RELEASED.format(data), model) for data in tables for model in ("slt", "patchtst")]
    alone = [(RELEASED.format("ETTh1"), model) for model in ("patchtst-mult", "slt-additive")]
    return {
        "published": span(kept(found, *one) for one in published),
        "centred": span(kept(found, *one, "centred") for one in (*published, *alone)),
        "mult": kept(found, *alone[0]),
        "additive": kept(found, *alone[1]),
        "projections": kept(found, RELEASED.format("ETTh1"), "projections"),
        "field": {
            model: span(kept(found, FIELD.format(data), model) for data in tables) for model in ("slt", "patchtst")
        },
    }


def total(found: Document, question: str, *settings: str) -> Document:
    """Claims of a question over settings whose names begin so: all, clear, and how."""
    chosen = [one for name, one in found["claims"][question].items() if name.startswith(settings or ("",))]
    sums = {key: sum(one[key] for one in chosen) for key in ("all", "yes", "no")}
    return {**sums, "clear": sums["yes"] + sums["no"]}


def of_blocks(found: Document) -> Document:
    """Claims on kinds of blocks, of the released protocol and of the field's."""
    names = list(found["claims"]["b"])
    return {
        protocol: total(found, "b", *(name for name in names if protocol in name)) for protocol in ("released", "field")
    }


def rougher_by_pair(found: Document) -> bool:
    """True if whatever is clear for attention under the released protocol is of the published pair, by rank at 0.01."""
    clear = [one for one in pick(found["findings"], question="b", verdict="yes") if "released" in one["setting"]]
    first = "attention in patchtst changes rank more than projection in slt, depth 0"
    return {one["setting"] for one in clear} == {RELEASED.format(data) for data in ("ETTh1", "ETTh2")} and all(
        one["claim"].startswith(first) and one["measure"].endswith("rank at 0.01") for one in clear
    )


def second_block(found: Document) -> bool:
    """True if what is clear against attention under the released protocol is in the second block, about the mean."""
    clear = [one for one in pick(found["findings"], question="b", verdict="no") if "released" in one["setting"]]
    pairs = {(one["setting"], one["first"], one["second"]) for one in clear}
    return all("depth 1" in one["claim"] and "centred" in one["measure"] for one in clear) and pairs == {
        (RELEASED.format("ETTh1"), "patchtst-mult", "slt"),
        (RELEASED.format("ETTh2"), "patchtst", "slt"),
    }


def lost(found: Document, setting: str, variant: str, kind: str, method: str, share: float) -> float:
    """Loss over that of the whole model after a cut, in percent above it."""
    row = only(found["curves"], setting=setting, variant=variant, kind=kind, method=method, asked=share)
    above: float = 100 * (row["relative"] - 1)
    return above


KINDS = {
    "attention": ("svd", "whitened", "joint"),
    "projection": ("svd", "whitened"),
    "feed_forward": ("svd", "whitened"),
}
"""Kind of layer → methods."""
ATTENTION = ("attention", "whitened")


def cuts(places: Sequence[tuple[str, str, str]], head: str) -> Callable[[Document], str]:
    """Loss over the whole model's, by kind of layer, method and share kept.

    Args:
        places: names in the table, settings and variants.
        head: of the first column.
    """

    def render(found: Document) -> str:
        rows = []
        for name, setting, variant in places:
            shown = name
            for kind, methods in KINDS.items():
                for method in methods:
                    mine = pick(found["curves"], setting=setting, variant=variant, kind=kind, method=method)
                    losses = {row["asked"]: f"{row['relative']:.3f}" for row in mine}
                    if losses:
                        layers = kind.replace("_", "-") if method == methods[0] else ""
                        rows.append([shown, layers, method, *(losses.get(share, "–") for share in SHARES)])
                        shown = ""
        return table([head, "layers", "by", "½", "¼", "⅛", "1/16"], rows)

    return render


CUT_ENCODERS = [(f"`{name}`", GENERATED, name) for name in ("linear", "linear-ppe", "linear-rotated")]
CUT_FORECASTERS = [
    (f"{data}, `{model}`", RELEASED.format(data), model) for data in ("ETTh1", "ETTh2") for model in ("slt", "patchtst")
]


def reached(found: Document) -> Document:
    """Shares that cuts of feed-forward layers reach."""
    rows = pick(found["curves"], setting=GENERATED, variant="linear", kind="feed_forward", method="svd")
    return {"shares": [only(rows, asked=share)["ratio"] for share in SHARES]}


def cut_encoders(found: Document) -> Document:
    """Losses of cut encoders in percent, over those that learn."""

    def over(kind: str, method: str, share: float, names: Sequence[str] = LEARNT) -> Span:
        return span(lost(found, GENERATED, name, kind, method, share) for name in names)

    quarter = {name: lost(found, GENERATED, name, "attention", "whitened", 0.25) for name in LEARNT}
    at_half = [
        abs(lost(found, GENERATED, name, "attention", "joint", 0.5) - lost(found, GENERATED, name, *ATTENTION, 0.5))
        for name in LEARNT
    ]
    clear = pick(found["findings"], question="d", setting=GENERATED, verdict="yes")
    return {
        "feed_forward": over("feed_forward", "whitened", 0.25),
        "attention": span(quarter.values()),
        "half": over(*ATTENTION, 0.5),
        "svd": over("attention", "svd", 0.5),
        "clear": sum("attention to 0.5 " in one["claim"] for one in clear),
        "joint": max(at_half),
        "ppe": quarter.pop("linear-ppe"),
        "rotated": quarter.pop("linear-rotated"),
        "others": span(quarter.values()),
    }


def cut_forecasters(found: Document) -> Document:
    """Losses of cut forecasters in percent."""
    quarters = {
        data: span(
            lost(found, RELEASED.format(data), "slt", kind, method, 0.25)
            for kind, methods in KINDS.items()
            for method in methods
            if method != "svd"
        )
        for data in ("ETTh1", "ETTh2")
    }
    mended = span(
        -lost(found, RELEASED.format("ETTh2"), "patchtst", kind, "whitened", share)
        for kind in ("attention", "feed_forward")
        for share in SHARES
    )
    plain = lost(found, RELEASED.format("ETTh1"), "slt", "feed_forward", "svd", 0.25)
    return {**quarters, "mended": mended, "svd": plain}


CLAIMS: tuple[Claim, ...] = (
    RANKS.block("lab-positions", by_positions(GENERATED, POSITIONED)),
    RANKS.block("lab-positions-etth1", by_positions(ETTH1, ("linear", "linear-ppe"))),
    RANKS.block("lab-blocks", by_blocks),
    RANKS.block("lab-cut-encoders", cuts(CUT_ENCODERS, "encoder")),
    RANKS.block("lab-cut-forecasters", cuts(CUT_FORECASTERS, "table, model")),
    RANKS.says(
        "give an effective rank of {turned:.1f} in place of {plain:.1f}; small positions that are not turned lose "
        "{lost:.1f} about the mean",
        at_the_input,
        turning_adds,
    ),
    RANKS.says("more directions count than in `linear`** in all three", holds=more_count),
    RANKS.says(
        "the effective rank of W_Q is {ppe:.1f} (`linear-ppe`) and {rotated:.1f} (`linear-rotated`) against "
        "{linear:.1f} (`linear`) and {scaled:.1f} (`linear-scaled`)",
        queries,
        lambda found: (
            max(queries(found)[one] for one in ("ppe", "rotated"))
            < min(queries(found)[one] for one in ("linear", "scaled"))
        ),
    ),
    RANKS.says("{clear:.0f} of {all:.0f} claims are clear. The controls", lambda found: total(found, "a", ETTH1)),
    RANKS.says(
        "within {positions:.0f} % of one another in effective rank, models that share blocks a factor of "
        "{blocks[least]:.1f} to {blocks[most]:.1f} apart",
        after_one,
    ),
    RANKS.says("attention is clearly the rougher first block", holds=rougher_by_pair),
    RANKS.says("This is clear for the mixing half", holds=second_block),
    RANKS.says(
        "Its effective rank is {published[least]:.0f} to {published[most]:.0f} % of what enters in the published pair, "
        "{mult:.0f} % in `patchtst-mult`, {additive:.0f} % in `slt-additive`; about the mean {centred[least]:.0f} to "
        "{centred[most]:.0f} % is left in all of them. Where the last block projects, in `projections`, "
        "{projections:.0f} % is left",
        last_block,
    ),
    RANKS.says(
        "the last block keeps more: {field[patchtst][least]:.0f} to {field[patchtst][most]:.0f} % in `patchtst`, "
        "{field[slt][least]:.0f} to {field[slt][most]:.0f} % in `slt`",
        last_block,
    ),
    RANKS.says(
        "Of {released[all]} claims {released[yes]} are clear for attention as the rougher block, all of the published "
        "pair, and {released[no]} against. Of {field[all]} about the field's runs (`*-field-*.json`) {field[yes]} are "
        "clear for it, {field[no]} against",
        of_blocks,
    ),
    RANKS.says(
        "none of {all} claims is clear",
        lambda found: total(found, "c"),
        lambda found: total(found, "c")["clear"] == 0,
    ),
    Prose(
        RANKS.page,
        ENCODERS.result.name,
        "At {chance:.2f} (ln 32 over the NLL of `linear`)",
        lambda found: {"chance": math.log(32) / loss(found, "1", "linear")["mean"]},
    ),
    RANKS.says("layers from below: {shares[0]:.3f}, {shares[1]:.3f}, {shares[2]:.3f}, {shares[3]:.3f}", reached),
    RANKS.says(
        "A quarter of the feed-forward numbers costs {feed_forward[least]:.0f} to {feed_forward[most]:.0f} % of NLL "
        "(`whitened`, all encoders but `sum`, which has learnt almost nothing); a quarter of attention costs "
        "{attention[least]:.0f} to {attention[most]:.0f} %",
        cut_encoders,
    ),
    RANKS.says(
        "at half the size attention loses {half[least]:.0f} to {half[most]:.0f} % in place of {svd[least]:.0f} to "
        "{svd[most]:.0f} % by plain SVD, clear for {clear} of the seven encoders",
        cut_encoders,
    ),
    RANKS.says(
        "at one half it is within {joint:.0f} % of `whitened`, and at a quarter clearly worse for `linear-ppe`",
        cut_encoders,
        lambda found: (
            [one["claim"] for one in pick(found["findings"], question="d", verdict="no")]
            == ["linear-ppe: cutting attention to 0.25 costs more by whitened than by joint"]
        ),
    ),
    RANKS.says(
        "at a quarter `linear-ppe` loses {ppe:.0f} % and `linear-rotated` {rotated:.0f} %, the others "
        "{others[least]:.0f} to {others[most]:.0f} %",
        cut_encoders,
    ),
    RANKS.says(
        "Of {all} claims {clear} are clear: {yes} for whitening, {no} against `joint`",
        lambda found: total(found, "d", GENERATED),
    ),
    RANKS.says(
        "left it loses {ETTh1[least]:.1f} to {ETTh1[most]:.1f} % (`whitened`, `joint`), by plain SVD of the "
        "feed-forward layers {svd:.0f} %, a clear difference. **On ETTh2 it does not**: it loses {ETTh2[least]:.0f} to "
        "{ETTh2[most]:.0f} %",
        cut_forecasters,
    ),
    RANKS.says("its error falls by {mended[least]:.0f} to {mended[most]:.0f} %", cut_forecasters),
    RANKS.says(
        "Of {all} claims {clear} is clear, for whitening over SVD",
        lambda found: total(found, "d", "ETTh"),
    ),
)
