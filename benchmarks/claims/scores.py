"""Scores and ranks of the bundled models: README, cards, docs."""

from __future__ import annotations

from claims.intervals import METRICS, interval
from claims.ranks import mean_ranks
from claims.records import DEV, SIX, Block, Claim, Document, Prose, Result

TWINS = {"bundled": "amazon/chronos-t5-tiny", "bundled-bolt": "amazon/chronos-bolt-tiny"}
"""Published models of the bundled ones' shapes."""
STAGED = "bundled-2"
"""A bundled model that learned in several stages."""
CARDS = (*TWINS, STAGED)
"""Bundled models that forecast well enough to be scored."""

RESULTS: tuple[Result, ...] = (
    Result("headline-bundled-bolt", "benchmarks/accuracy.py headline bundled-bolt", minutes=4),
    *(Result(f"scores-{one}", f"benchmarks/scores.py {one} {SIX} --beside {twin}", 4) for one, twin in TWINS.items()),
    Result("scores-bundled-2", f"benchmarks/scores.py bundled-2 {SIX}", minutes=4),
    *(Result(f"development-{one}", f"benchmarks/scores.py {one} {DEV}", minutes=3) for one in CARDS),
)


def card(scores: Document, development: Document, ranks: Document) -> str:
    """Scores of a model's card, beside a published model of its shape if there is one, and its ranks."""
    mine, base, known = (
        scores["scores"][scores["model"]],
        scores["scores"][scores["reference"]],
        scores.get("published"),
    )
    columns = [("", mine), ("seasonal naive ", base), *([("published ", known)] if known else [])]
    samples = f", {scores['num_samples']} sample paths" if scores["model"] == "bundled" else ""
    lines = [
        "## Scores",
        "",
        f"Scored on the six public data sets on {scores['date']}, at commit {scores['commit'][:7]}, by "
        f"chronos-forecasting's protocol; seed {scores['seed']}{samples}.",
    ]
    if known:
        lines.append(
            f"The published column is `{TWINS[scores['model']]}`, a model of the same shape trained on real data."
        )
    lines += [
        "",
        "| data set | " + " | ".join(f"{words}MASE | WQL" for words, _ in columns) + " |",
        "|---" * (1 + 2 * len(columns)) + "|",
        *(
            f"| {one} | " + " | ".join(f"{row[one][metric]:.4f}" for _, row in columns for metric in METRICS) + " |"
            for one in mine
        ),
        "",
        "Relative to seasonal naive (geometric means, with 95 % intervals over data sets and series):",
        "",
        "| benchmark | data sets | MASE | WQL | worst set, WQL |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {row['datasets']} | {interval(row, 'MASE')} | {interval(row, 'WQL')} | {worst(found, name)} |"
            for name, row, found in (
                *((name, row, scores) for name, row in scores["relative"].items()),
                ("development", development["relative"]["all"], development),
            )
        ),
    ]
    if known:
        lines.append(
            f"| all, published {TWINS[scores['model']].partition('/')[2]} | {scores['relative']['all']['datasets']} | "
            + " | ".join(f"{scores['published_relative'][metric]:.3f}" for metric in METRICS)
            + " | |"
        )
    lines += [
        "",
        *(f"Worse than seasonal naive in {metric}: {weak(metric, scores, development)}." for metric in METRICS),
        "",
        f"Mean {ranks['eps']}-rank of the attention matrices, of 256, after training and before:",
        "",
        "| stack | W_Q | W_K | W_V | W_O |",
        "|---|---|---|---|---|",
        *(f"| {stack} | {' | '.join(mean_ranks(ranks, stack))} |" for stack in ranks["trained"]),
    ]
    return "\n".join(lines)


def worst(found: Document, benchmark: str) -> str:
    """Largest WQL over seasonal naive's of a benchmark's data sets, with its name."""
    mine, base = found["scores"][found["model"]], found["scores"][found["reference"]]
    sets = [one for one in mine if benchmark in ("all", "development", found["benchmarks"][one])]
    ratio, name = max((mine[one]["WQL"] / base[one]["WQL"], one) for one in sets)
    return f"{ratio:.2f} ({name})"


def weak(metric: str, *found: Document) -> str:
    """Data sets with a score above seasonal naive's, with the ratio, the worst first; "nowhere" if there is none."""
    ratios = [
        (one["scores"][one["model"]][name][metric] / row[metric], name)
        for one in found
        for name, row in one["scores"][one["reference"]].items()
    ]
    return ", ".join(f"{name} ({ratio:.2f})" for ratio, name in sorted(ratios, reverse=True) if ratio > 1) or "nowhere"


TITLES = {"bundled": "Chronos-T5", "bundled-bolt": "Chronos-Bolt", "bundled-2": "Chronos-2"}


def trained_models(*scores: Document) -> str:
    """Size, training and scores of the bundled models, beside their published twins' where there are any."""
    lines = [
        "| model | parameters | training | WQL | MASE | published WQL | MASE |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in scores:
        name, trained, known = one["model"], one["training"], one.get("published_relative")
        more = " on a GPU, [two stages](howto/train.md#groups-and-covariates-chronos-2) on a CPU" * (name == STAGED)
        twin = f"{known['WQL']:.3f} | {known['MASE']:.3f}" if known else "– | –"
        lines.append(
            f"| [`{name}`](../src/rankscope/bundled/{name}/README.md), {TITLES[name]} "
            f"| {trained['parameters'] / 1e6:.1f} M | {trained['steps']:,} steps, {trained['seconds']:.0f} s{more} "
            f"| {interval(one['relative']['all'], 'WQL')} | {interval(one['relative']['all'], 'MASE')} | {twin} |"
        )
    return "\n".join(lines)


_HEADLINE = (
    "With `--storage int8` as well the model of the commands above takes {stored:.0f} % of the original's bytes, "
    "for {int8[WQL]:.3f}× its WQL ({int8[WQL_interval][0]:.3f}–{int8[WQL_interval][1]:.3f}) and {int8[MASE]:.3f}× its "
    "MASE ({int8[MASE_interval][0]:.3f}–{int8[MASE_interval][1]:.3f}) on the {float[datasets]} small data sets"
)


def headline(found: Document) -> Document:
    """Scores of both forms, and the per cent of the bytes that are left in int8."""
    return {**found["forms"], "stored": 100 * found["forms"]["int8"]["bytes"]}


CLAIMS: tuple[Claim, ...] = (
    Prose("README.md", "headline-bundled-bolt", _HEADLINE, headline),
    Prose(
        "docs/index.md",
        "headline-bundled-bolt",
        "cut to {float[parameters]:.2f} of its weights, has {float[WQL]:.3f} times the original's WQL and "
        "{float[MASE]:.3f} times its MASE on {float[datasets]} small data sets",
        lambda found: found["forms"],
    ),
    *(
        Block(
            f"src/rankscope/bundled/{one}/README.md",
            "scores",
            (f"scores-{one}", f"development-{one}", f"ranks-{one}"),
            card,
            append=True,
        )
        for one in CARDS
    ),
    Block("docs/benchmarks.md", "trained", tuple(f"scores-{one}" for one in CARDS), trained_models),
)
