"""What changed files and injected faults did to rankscope."""

from __future__ import annotations

from claims.records import Block, Claim, Document, Prose, Result

PAGE = "docs/reference/robustness.md"
FUZZ, FAULTS, KILLS = "fuzz", "faults", "kills"
SEED = 2026
RESULTS: tuple[Result, ...] = (
    Result(
        FUZZ,
        f"python -m tests.fuzz --seconds 3600 --seed {SEED} --out benchmarks/results/fuzz.json",
        minutes=60,
        older=True,
        by_hand=True,
    ),
    Result(
        FAULTS,
        "python -m tests.faults --out benchmarks/results/faults.json",
        minutes=150,
        older=True,
        by_hand=True,
    ),
    Result(
        KILLS,
        "python -m tests.faults --only pretrain,sweep,table2 --kills 50 --out benchmarks/results/kills.json",
        minutes=5,
        older=True,
        by_hand=True,
    ),
    Result("load", "benchmarks/load.py --only series,model,files", minutes=20, timed=True),
    Result("load-beyond", "benchmarks/load.py --only long,workers", minutes=15, timed=True),
)


def fuzzed(found: Document) -> str:
    """Inputs, those that came out wrong, and peak memory."""
    counts = found["counts"].values()
    tried, wrong = sum(one["tried"] for one in counts), sum(sum(one["wrong"].values()) for one in counts)
    peak = max(one["peak"] for one in counts) / 1e9
    return f"Of {tried:,} inputs of {len(counts)} kinds {wrong or 'none'} came out wrong; peak memory: {peak:.2f} GB."


def failed(found: Document) -> str:
    """Calls that could fail, runs with a fault, and what was lost, left or badly said."""
    names = ("points", "runs", "losses", "litter", "messages")
    points, runs, losses, litter, messages = (sum(one[name] for one in found["counts"].values()) for name in names)
    return (
        f"{points:,} calls of {len(found['counts'])} commands failed in {runs:,} runs: {losses} lost outputs, "
        f"{litter} leftover files, {messages} wrong messages."
    )


def killed(found: Document) -> str:
    """Kills, and what was lost."""
    runs, losses = (sum(one[name] for one in found["counts"].values()) for name in ("runs", "losses"))
    return f"{runs} kills of {', '.join(f'`{verb}`' for verb in sorted(found['counts']))}: {losses} lost outputs."


def loaded(found: Document, beyond: Document) -> str:
    """Rate and memory of every load."""
    found = {**found, **beyond}
    lines = ["| load | time | rate | peak memory | memory early and late in the run |", "|---|---|---|---|---|"]
    names = (
        ("series", "series", "{:,} series of 24 values, seasonal naive"),
        ("model", "series", "the first {:,} of them, `bundled-bolt`"),
        ("files", "files", "{:,} CSV files in a folder, seasonal naive"),
        ("long", "values", "one series of {:,} values, `bundled-bolt`"),
    )
    for name, unit, words in names:
        one = found[name]
        early, late = (f"{one['memory'][at] / 1000:.2f}" for at in ("second_tenth_mb", "last_tenth_mb"))
        lines.append(
            f"| {words.format(one[unit])} | {one['seconds']:,.0f} s | {one[unit] / one['seconds']:,.0f} {unit}/s "
            f"| {one['memory']['peak_mb'] / 1000:.2f} GB | {early} and {late} GB |"
        )
    return "\n".join(lines)


CLAIMS: tuple[Claim, ...] = (
    Block(PAGE, FUZZ, (FUZZ,), fuzzed),
    Block(PAGE, FAULTS, (FAULTS,), failed),
    Block(PAGE, KILLS, (KILLS,), killed),
    Block(PAGE, "load", ("load", "load-beyond"), loaded, moves=0.2),
    Prose(
        PAGE,
        "load-beyond",
        "killed every few seconds for {minutes:.0f} minutes, {kills} times; {resumed} times Ray gave up on a "
        "part and the command ended, to be continued with `--resume`. Once the whole file was finished in this way; "
        "its forecasts equal those of a single process byte for byte",
        lambda found: found["workers"],
        holds=lambda found: found["workers"]["identical"] and found["workers"]["forecasts"] == 1,
        moves=0.5,
    ),
    Prose(
        PAGE,
        "load",
        "all of the series would take it {hours:.1f} hours",
        lambda found: {"hours": found["model"]["seconds_of_all"] / 3600},
        moves=0.2,
    ),
)
