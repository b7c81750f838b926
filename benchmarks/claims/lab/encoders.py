"""Encoders beside the published audit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from claims.lab.shared import ENCODERS, only, pick, plus_minus
from claims.records import Claim, Document, table


def loss(found: Document, number: str, encoder: str) -> Document:
    """Mean NLL of a table."""
    return only(found["tables"][number], encoder=encoder, measure="nll")


def loss_verdicts(found: Document) -> dict[str, int]:
    """How many mean NLL on ETTh1 are within one and two published standard deviations."""
    return dict(Counter(row["verdict"] for row in pick(found["tables"]["13"], measure="nll")))


def beside(row: Document) -> str:
    """Published number: with its standard deviation or interval."""
    printed = row["published"]
    if printed["interval"] and printed["std"] is None:
        low, high = (f"{end:.{row['digits']}f}".replace("-", "−") for end in printed["interval"])
        return f"{plus_minus({**printed, 'std': None}, row['digits'])} ({low} to {high})"
    return plus_minus(printed, row["digits"])


ALONE = ("ci", "cat")
DROP_IN = ("sum", "concat", "linear", "linear-ortho", "mlp", "linear-ppe")
ON_ETTH1 = ("linear", "linear-ortho", "concat", "linear-ppe", "mlp", "sum")
"""In the order of print."""


def losses(number: str, encoders: Sequence[str]) -> Callable[[Document], str]:
    """NLL and accuracy of a table beside published ones; those of one seed say so."""

    def render(found: Document) -> str:
        rows = []
        for encoder in encoders:
            rows_of = found["one_seed" if encoder in ALONE else "tables"][number]
            cells = []
            for measure in ("nll", "accuracy"):
                row = only(rows_of, encoder=encoder, measure=measure)
                cells += [plus_minus(row, row["digits"]), beside(row)]
            rows.append([f"`{encoder}`, seed 0" if encoder in ALONE else f"`{encoder}`", *cells])
        return table(["encoder", "NLL, ours", "printed (20 seeds)", "accuracy, ours", "printed"], rows)

    return render


def finding(found: Document, topic: str, quantity: str, subject: str) -> Document:
    """One of the findings."""
    return only(found["findings"], topic=topic, quantity=quantity, subject=subject)


CONTROLS = {
    "linear": "$p(t)$",
    "linear-scaled": r"$0.56\, p(t)$",
    "linear-ppe": "trained map, small at first",
    "linear-rotated": "trained map, a rotation at first",
}


def controls(found: Document) -> str:
    """Size and place of positions, and what they bring."""
    rows = []
    for encoder, positions in CONTROLS.items():
        cells = []
        for quantity, digits in (("‖P‖²", 0), ("effective rank", 2), ("share in span W", 3), ("best NLL", 3)):
            one = finding(found, "positions", quantity, encoder)
            spread = one | {"std": one["std"] if digits in (0, 3) and one["std"] else None}
            cells.append(f"{one['mean']:,.0f}" if digits == 0 and not one["std"] else plus_minus(spread, digits))
        gains = pick(found["findings"], quantity="best NLL", subject=f"{encoder}, gain")
        cells += [f"{plus_minus(one | {'std': None}, 3)}, p = {one['p']:.3f}" for one in gains] or ["–"]
        rows.append([f"`{encoder}`", positions, *cells])
    energy = r"$\lVert P \rVert_F^2$ at the end"
    head = ["", "positions", energy, "effective rank of $P$", "share in span $W$", "NLL", "lower than `linear` by"]
    return table(head, rows)


def geometry(found: Document) -> str:
    """Tables 5 and 11 without what they repeat of Table 1, and without constants."""
    rows = []
    for number in ("5", "11"):
        mine = [row for row in found["tables"][number] if row["measure"] != "nll" and row["std"] > 1e-9]
        for row in mine:
            what = row["title"].replace("|", r"\|") + (", change" if row["setting"] == "change" else "")
            ours = plus_minus(row, row["digits"])
            place = number if row is mine[0] else ""
            rows.append([place, f"`{row['encoder']}`", what, ours, beside(row), row["verdict"]])
    return table(["table", "encoder", "", "ours", "printed", "verdict"], rows)


def outside(found: Document) -> str:
    """Numbers that are farther from print than two standard deviations, or outside a printed interval."""
    rows = []
    for number, numbers in found["tables"].items():
        for row in pick(numbers, verdict="outside", counted=True):
            what = f"{row['title']}, {row['setting']}" if row["setting"].startswith("layer") else row["title"]
            rows.append([number, f"`{row['encoder']}`", what, plus_minus(row, row["digits"]), beside(row)])
    return table(["table", "encoder", "", "ours", "printed"], rows)


def angles(found: Document) -> str:
    """Table 6 beside chance."""
    rows = []
    for channels in (4, 8, 16):
        cells = []
        for measure in ("nll", "cos_mean", "cos_max"):
            row = only(found["channels"]["6"], setting=f"C={channels}", measure=measure)
            cells += [plus_minus(row, 3), beside(row)]
        chance = [
            finding(found, "angles", name, f"chance, C={channels}")["expected"] for name in ("mean |cos|", "max |cos|")
        ]
        rows.append([str(channels), *cells, ", ".join(f"{one:.3f}" for one in chance)])
    cosine = r"mean $\lvert\cos\rvert$, ours"
    return table(
        ["C", "NLL, ours", "printed", cosine, "printed", "largest, ours", "printed", "chance, mean and largest"], rows
    )


DIFFERENT = {
    ("1", "concat", "accuracy"),
    ("13", "linear", "nll"),
    ("13", "concat", "nll"),
    ("13", "sum", "accuracy"),
    ("13", "linear-ortho", "accuracy"),
    ("13", "linear-ppe", "accuracy"),
}
"""Numbers that Welch's test tells from the published ones, as the page lists them."""


def as_listed(found: Document) -> bool:
    """True if Welch's test names the numbers that the page lists, and Holm's method none."""
    rows = [(number, row) for number, numbers in found["tables"].items() for row in numbers if row["counted"]]
    apart = {
        (number, row["encoder"], row["measure"]) for number, row in rows if row["p"] is not None and row["p"] < 0.05
    }
    return apart == DIFFERENT and found["counts"]["least_adjusted"] >= 0.05


def within(number: str, *others: tuple[str, str]) -> Callable[[Document], bool]:
    """Whether the means of a table are within a published standard deviation, others (encoder, measure) within two."""

    def holds(found: Document) -> bool:
        rows = [*found["tables"].get(number, []), *found["one_seed"].get(number, [])]
        rows = rows or found["channels"][number]
        judged = [row for row in rows if row["verdict"] and row["verdict"] != "equal"]
        return all(
            row["verdict"] == ("within 2" if (row["encoder"], row["measure"]) in others else "within") for row in judged
        )

    return holds


def leads(found: Document) -> Document:
    """Paired tests: mean, p, seeds won, and what was published."""
    leads = {}
    for row in found["paired"]:
        printed, gap = row["published"], row["measured"]
        if printed["setting"] in ("C=4", "ETTh1"):
            leads[
                f"{printed['setting']} {printed['better']} {printed['other']}".replace("C=4 ", "").replace("-", "_")
            ] = {
                "mean": gap["difference"]["mean"],
                "n": gap["difference"]["n"],
                "wins": gap["higher"],
                "p": gap["p"],
                "printed": printed,
            }
    return leads


def baselines(found: Document) -> Document:
    """Known scores on ETTh1 without a transformer, and chance."""
    known = {
        name: finding(found, "baselines", *words)["expected"]
        for name, words in {
            "repeated": ("accuracy", "current bin"),
            "transitions": ("NLL", "transition table"),
            "frequencies": ("NLL", "marginal"),
            "lowest": ("share of labels", "lowest bin"),
        }.items()
    }
    return {
        **known,
        "percent": 100 * known["lowest"],
        "chance": finding(found, "angles", "mean |cos|", "chance, C=4")["mean"],
    }


def against_baselines(found: Document) -> bool:
    """True if repeating bins beats every accuracy, and the transitions only the NLL of `sum`."""
    known, rows = baselines(found), found["tables"]["13"]
    accurate = max(row["mean"] for row in pick(rows, measure="accuracy"))
    worse = {row["encoder"] for row in pick(rows, measure="nll") if row["mean"] > known["transitions"]}
    return (
        bool(accurate < known["repeated"] and worse == {"sum"})
        and loss(found, "13", "sum")["mean"] > known["frequencies"]
    )


def zeros(found: Document) -> Document:
    """NLL of `linear` with the constant positions and without, and the lead of `linear-ppe`."""
    with_them, without = "NLL, last epoch", "NLL without them"
    return {
        "all": finding(found, "zeros", with_them, "linear")["mean"],
        "rest": finding(found, "zeros", without, "linear")["mean"],
        "lead": finding(found, "zeros", without, "linear-ppe, gain")["mean"],
        "lead_of_all": finding(found, "zeros", with_them, "linear-ppe, gain")["mean"],
    }


def map_not_size(found: Document) -> bool:
    """True if small positions lose, both maps gain about the same, and leave the channels' span."""
    gains = {one: finding(found, "positions", "best NLL", f"{one}, gain") for one in list(CONTROLS)[1:]}
    shares = {one: finding(found, "positions", "share in span W", one)["mean"] for one in CONTROLS}
    sizes = [finding(found, "positions", "‖P‖²", one)["mean"] for one in ("linear-rotated", "linear-ppe")]
    return bool(
        gains["linear-scaled"]["mean"] < 0
        and gains["linear-scaled"]["p"] < 0.05
        and abs(gains["linear-ppe"]["mean"] / gains["linear-rotated"]["mean"] - 1) < 0.1
        and max(shares["linear-ppe"], shares["linear-rotated"]) < shares["linear"] / 3
        and 1.8 < sizes[0] / sizes[1] < 2.2
    )


def orders(found: Document) -> Document:
    """Runs in which masks cost in the printed order: of the five encoders that learn, and of the other two."""
    kept = {row["subject"]: row for row in found["mask_orders"] if row["subject"] != "sum"}
    five = [row for name, row in kept.items() if name not in ALONE]
    return {
        "seeds": sum(row["seeds"] for row in five),
        "n": sum(row["n"] for row in five),
        "others": all(kept[name]["seeds"] == kept[name]["n"] for name in ALONE),
    }


def in_printed_order(found: Document) -> bool:
    """True if the encoders on ETTh1 come in the printed order of NLL, by our means, too."""
    rows = pick(found["tables"]["13"], measure="nll")
    ours = [row["encoder"] for row in sorted(rows, key=lambda row: row["mean"])]
    printed = {row["encoder"]: row["published"]["mean"] for row in rows}
    return [printed[one] for one in ours] == sorted(printed.values())


CLAIMS: tuple[Claim, ...] = (
    ENCODERS.block("lab-audit", losses("1", (*DROP_IN, *ALONE))),
    ENCODERS.block("lab-controls", controls),
    ENCODERS.block("lab-geometry", geometry),
    ENCODERS.block("lab-outside", outside),
    ENCODERS.block("lab-mlp-angles", angles),
    ENCODERS.block("lab-audit-etth1", losses("13", ON_ETTH1)),
    ENCODERS.says(
        "of {all} printed numbers that runs here can be compared with, {within} are within one published standard "
        "deviation, {within_2} within two, {inside} within a printed interval and {outside} outside",
        lambda found: found["counts"],
    ),
    ENCODERS.says(
        "repeats {all} numbers of the six encoders are judged, {from_one_seed} of them (Tables 8 and 9) from one seed: "
        "{within} are within one standard deviation, {within_2} within two, {inside} inside a printed interval and "
        "{outside} outside. For {tested} of them print states a standard deviation over seeds. Welch's t-test finds "
        "{different} of those different at $p < 0.05$, one and a half would be chance, and none by Holm's method "
        "(least: {least_adjusted:.3f})",
        lambda found: found["counts"],
        as_listed,
    ),
    ENCODERS.says("**Table 1: every mean is within one published", holds=within("1", ("ci", "accuracy"))),
    ENCODERS.says(
        "Seed by seed `linear-ppe` leads `linear` by {linear_ppe linear[mean]:.3f} in {linear_ppe linear[wins]} of "
        "{linear_ppe linear[n]} (p = {linear_ppe linear[p]:.3f}; printed {linear_ppe linear[printed][difference]:.3f}, "
        "{linear_ppe linear[printed][wins]} of {linear_ppe linear[printed][n]}), and `linear` leads `mlp` by "
        "{linear mlp[mean]:.3f} in {linear mlp[wins]} of {linear mlp[n]} (p = {linear mlp[p]:.3f}; printed "
        "{linear mlp[printed][difference]:.3f}). The lead of `linear` over `concat`, {linear concat[mean]:.3f}, is not "
        "clear with five seeds ({linear concat[printed][difference]:.3f}, p = {linear concat[printed][p]:.3f} in",
        leads,
        lambda found: leads(found)["linear concat"]["p"] > 0.05,
    ),
    ENCODERS.says("Small positions alone make the model worse", holds=map_not_size),
    ENCODERS.says(
        "the printed order, in {seeds} of {n} runs of the five encoders that learn and in the one run each",
        orders,
        lambda found: orders(found)["others"],
    ),
    ENCODERS.says("**Table 6, more channels: all nine means within.**", holds=within("6")),
    ENCODERS.says(
        "**Table 13, ETTh1: every mean NLL is within two",
        holds=lambda found: loss_verdicts(found) == {"within": 5, "within 2": 1},
    ),
    ENCODERS.says(
        "by Welch's test alone (p = {linear[p]:.3f} and {concat[p]:.3f})",
        lambda found: {encoder: loss(found, "13", encoder) for encoder in DROP_IN},
    ),
    ENCODERS.says("The order is the printed one", holds=in_printed_order),
    ENCODERS.says(
        "`linear` leads `linear-ppe` by {ETTh1 linear linear_ppe[mean]:.3f} in {ETTh1 linear linear_ppe[wins]} of "
        "{ETTh1 linear linear_ppe[n]} seeds (p = {ETTh1 linear linear_ppe[p]:.3f}; in the released runs "
        "{ETTh1 linear linear_ppe[printed][difference]:.3f}, {ETTh1 linear linear_ppe[printed][wins]} of "
        "{ETTh1 linear linear_ppe[printed][n]}, p = {ETTh1 linear linear_ppe[printed][p]:.3f})",
        leads,
    ),
    ENCODERS.says(
        "`linear` has {all:.3f} with them and {rest:.3f} without. The offset is about the same for all encoders, and "
        "the lead of `linear-ppe` stays ({lead:.3f} in place of {lead_of_all:.3f})",
        zeros,
    ),
    ENCODERS.says(
        "{percent:.0f} % of the validation labels are in the lowest of the 32 training bins. Repeating the current bin "
        "has accuracy {repeated:.3f}, above every encoder of Table 13; a table of transitions between bins, counted on "
        "the training windows, has NLL {transitions:.3f}; the frequencies of bins alone have {frequencies:.2f}",
        baselines,
        against_baselines,
    ),
    ENCODERS.says("mean $\\lvert\\cos\\rvert$ of {chance:.3f} already", baselines),
)
