"""What training does to scores, ranks, compressibility (from snapshots of a GPU run) and to the use of groups."""

from __future__ import annotations

from claims.intervals import interval
from claims.records import DEV, Block, Claim, Document, Prose, Result, table

NAME = "snapshots-bundled-bolt"
GROUPS = "groups-bundled-2"
PAGE = "docs/benchmarks.md"
RESULTS: tuple[Result, ...] = (
    Result(NAME, f"benchmarks/snapshots.py gpu-out/bundled-bolt {DEV}", minutes=60, older=True),
    Result(GROUPS, "benchmarks/groups.py bundled-2", minutes=2),
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


def groups(found: Document) -> str:
    """Loss beside the rest of the group over that alone, a row a kind."""
    rows = (
        [kind, "{:.3f} ({:.3f}–{:.3f})".format(one["ratio"], *one["interval"])] for kind, one in found["kinds"].items()
    )
    return table(("kind of group", "loss with the group / alone"), rows)


def unused(found: Document) -> bool:
    """No kind of group changes the loss by 2 %."""
    return all(abs(one["ratio"] - 1) < 0.02 for one in found["kinds"].values())


def values(found: Document) -> Document:
    """First and last snapshot."""
    rows = [row for row in found["rows"] if row["series"]]
    first, last = rows[0], rows[-1]
    return {
        "first": first,
        "last": last,
        "start": found["rows"][0]["ranks"]["encoder self.q"]["rank"],
        "early": first["ranks"]["encoder self.q"]["rank"],
        "end": last["ranks"]["encoder self.q"]["rank"],
        "worst": last["forms"]["0.15"]["worst"]["WQL"][1],
    }


def harder(found: Document) -> bool:
    """Ranks fall while what compression costs rises, at the smallest sizes."""
    seen = values(found)
    costs = [[seen[name]["forms"][ratio]["WQL"] for name in ("first", "last")] for ratio in ("0.25", "0.15", "0.1")]
    return seen["end"] < seen["start"] and all(last > first + 0.02 for first, last in costs)


def less(now: Document, then: Document) -> bool:
    """The end of the run loses less than by the calibration that the snapshots were measured with."""
    before = then["rows"][-1]["forms"]
    return all(now["forms"][f"joint+stream-{size}"]["WQL"] < before[size]["WQL"] for size in ("0.1", "0.15"))


CLAIMS: tuple[Claim, ...] = (
    Block(PAGE, NAME, (NAME,), snapshots),
    Block("docs/howto/train.md", GROUPS, (GROUPS,), groups),
    Prose("docs/howto/train.md", GROUPS, "**`bundled-2` makes no use of its group.**", holds=unused),
    Prose("README.md", GROUPS, "The bundled Chronos-2 makes no use of covariates or of other series", holds=unused),
    Prose(
        PAGE,
        NAME,
        "while W_Q's mean 0.1-rank falls from {start:.0f} before training and {early:.0f} at the first snapshot to "
        "{end:.0f}, the loss at 0.1 of the parameters rises from "
        "{first[forms][0.1][WQL]:.3f} to {last[forms][0.1][WQL]:.3f} in WQL, and on the worst data set at 0.15 it is "
        "{worst:.2f}",
        values,
        holds=harder,
    ),
    Prose(
        PAGE,
        "together-bundled-bolt",
        "the end of the run loses less ({forms[joint+stream-0.1][WQL]:.3f} at 0.1 of the parameters; at 0.15 it is "
        "{forms[joint+stream-0.15][WQL]:.3f}, and {forms[joint+stream-0.15][worst][WQL][1]:.2f} on the worst data set)",
        also=(NAME,),
        holds=less,
    ),
)
