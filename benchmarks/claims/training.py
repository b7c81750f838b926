"""What training does to scores, ranks, compressibility (from snapshots of a run) and the use of groups; its speed."""

from __future__ import annotations

from claims.intervals import interval
from claims.records import DEV, Block, Claim, Document, Prose, Result, table

NAME = "snapshots-bundled-bolt"
GROUPS, FIRST = "groups-bundled-2", "groups-bundled-2-first"
PAGE = "docs/benchmarks.md"
RESULTS: tuple[Result, ...] = (
    Result(NAME, f"benchmarks/snapshots.py bolt {DEV}", minutes=20, older=True),
    Result(GROUPS, "benchmarks/groups.py bundled-2", minutes=2),
    Result(FIRST, "benchmarks/groups.py bundled-2", minutes=2, older=True),
    Result("training", "benchmarks/training.py", minutes=5, timed=True),
)


def snapshots(found: Document) -> str:
    """Scores and what compression costs, a row a snapshot."""
    rows = [row for row in found["rows"] if row["series"]]
    ratios = list(rows[0]["forms"])
    cells = []
    for row in rows:
        for metric in ("WQL", "MASE"):
            costs = (interval(row["forms"][ratio], metric) for ratio in ratios)
            cells.append([f"{row['series']:,}", metric, f"{row['over_naive'][metric]:.3f}", *costs])
    return table(("series seen", "metric", "over seasonal naive", *(f"at {ratio}" for ratio in ratios)), cells)


def groups(found: Document, first: Document) -> str:
    """Loss beside the rest of the group over that alone, a row a kind, after the first stage and after the last."""
    rows = [
        [kind, *("{ratio:.3f} ({interval[0]:.3f}–{interval[1]:.3f})".format(**one["kinds"][kind]) for one in both)]
        for both in [(first, found)]
        for kind in found["kinds"]
    ]
    return table(("kind of group", "after the first stage", "`bundled-2`"), rows)


def learned(found: Document, first: Document) -> bool:
    """After the first stage no kind moves the loss by 2 %; now covariates lower it, and no other kind by 2 %."""
    kinds = dict(found["kinds"])
    driven = [kinds.pop("driven"), kinds.pop("driven linearly, little of its own")]
    return (
        all(abs(one["ratio"] - 1) < 0.02 for one in first["kinds"].values())
        and all(one["interval"][1] < 0.98 for one in driven)
        and all(one["ratio"] > 0.98 for one in kinds.values())
    )


def unrelated(found: Document) -> dict[str, float]:
    """Per cent that unrelated series add to the loss."""
    return {"costs": 100 * (found["kinds"]["unrelated"]["ratio"] - 1)}


def training(found: Document) -> str:
    """Series a second of training, and how many times as fast as stock in float32."""
    ways = ("stock float32", "stock bfloat16", "fast float32", "fast bfloat16")
    lines = [f"| run | {' | '.join(ways)} |", "|---" * (len(ways) + 1) + "|"]
    for run, step in found["steps"].items():
        cells = [
            f"{step['series_per_second'][way]['median']:,.0f} ({step['times_stock_float32'][way]:.2f})" for way in ways
        ]
        lines.append(f"| {run}, context {step['context']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def values(found: Document) -> Document:
    """Snapshots from the second on, and W_Q's mean rank at the start, the second and the last."""
    start, _, second, third, last = found["rows"]
    rank = {name: row["ranks"]["encoder self.q"]["rank"] for name, row in (("start", start), ("early", second))}
    return {**rank, "end": last["ranks"]["encoder self.q"]["rank"], "second": second, "third": third, "last": last}


def flat(found: Document) -> bool:
    """Scores improve and ranks fall, and no later snapshot loses more than the second beyond its interval."""
    seen = values(found)
    later = [seen[name] for name in ("third", "last")]
    return (
        seen["end"] < seen["early"] < seen["start"]
        and seen["last"]["over_naive"]["WQL"] < 0.7 < seen["second"]["over_naive"]["WQL"]
        and all(
            row["forms"][ratio][metric] < seen["second"]["forms"][ratio][f"{metric}_interval"][1]
            for row in later
            for ratio in row["forms"]
            for metric in ("WQL", "MASE")
        )
    )


def again(found: Document, bundled: Document) -> Document:
    """The end of this training, and the bundled weights, over seasonal naive."""
    mine, theirs = found["rows"][-1]["over_naive"], bundled["relative"]["all"]
    return {"mine": mine, "theirs": theirs}


def same(found: Document, bundled: Document) -> bool:
    """The two are within 1 % of each other."""
    both = again(found, bundled)
    return all(abs(both["mine"][one] / both["theirs"][one] - 1) < 0.01 for one in ("WQL", "MASE"))


CLAIMS: tuple[Claim, ...] = (
    Block(PAGE, NAME, (NAME,), snapshots),
    Block("docs/howto/train.md", GROUPS, (GROUPS, FIRST), groups),
    Prose("docs/howto/train.md", GROUPS, "unrelated series cost {costs:.1f} %", unrelated),
    Block("docs/howto/train.md", "training", ("training",), training, moves=0.1),
    *(
        Prose(page, GROUPS, words, holds=learned, also=(FIRST,))
        for page, words in (
            ("docs/howto/train.md", "**`bundled-2` uses known covariates, and no other series of its group.**"),
            ("README.md", "The bundled Chronos-2 uses known covariates, and no other series"),
            (
                "src/rankscope/bundled/bundled-2/README.md",
                "It uses covariates that are known in the future, and gains nothing from other series",
            ),
        )
    ),
    Prose(
        PAGE,
        NAME,
        "the score improves from {second[over_naive][WQL]:.3f} to {last[over_naive][WQL]:.3f} of seasonal naive's WQL "
        "while W_Q's mean 0.1-rank falls from {early:.0f} to {end:.0f} (before training: {start:.0f}), and what "
        "compression costs does not change beyond its intervals: at 0.1 of the parameters "
        "{second[forms][0.1][WQL]:.3f}, {third[forms][0.1][WQL]:.3f} and {last[forms][0.1][WQL]:.3f} in WQL",
        values,
        holds=flat,
    ),
    Prose(
        PAGE,
        NAME,
        "The end of this training scores as the bundled weights do ({theirs[WQL]:.3f} in WQL, {mine[MASE]:.3f} and "
        "{theirs[MASE]:.3f} in MASE)",
        again,
        also=("development-bundled-bolt",),
        holds=same,
    ),
)
