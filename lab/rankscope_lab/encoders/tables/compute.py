"""Tables of the audit and its paired tests, computed from runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rankscope_lab.encoders.published import (
    Published,
    PublishedTest,
    agrees,
    published_seeds,
    published_tests,
    published_value,
    verdict,
)
from rankscope_lab.encoders.run_spec import RunResult, RunSpec
from rankscope_lab.encoders.tables.paper import NLL_COLUMN, SETTINGS
from rankscope_lab.encoders.tables.spec import Column, Protocol, Row, Runs, TableResult, TableSpec, runs_of
from rankscope_lab.statistics import Paired, Spread, bootstrap_interval, differences, holm, paired, spread, welch


def table_runs(table: TableSpec, asked: Protocol) -> list[RunSpec]:
    """Runs that a table needs, encoder by encoder: no more seeds than it was printed from."""
    return [
        setting.spec(encoder, seed, asked.epochs)
        for setting in table.settings
        for encoder in setting.encoders
        if asked.takes(encoder)
        for seed in range(min(asked.seeds, published_seeds(table.id)))
    ]


def compute_table(table: TableSpec, runs: Runs, asked: Protocol) -> TableResult:
    """Rows of a table from the runs there are.

    Args:
        table: which.
        runs: spec → result; those that a table needs and that are not here are said to be missing.
        asked: seeds, epochs and encoders.
    """
    rows = (*_setting_rows(table, runs, asked), *_contrast_rows(table, runs, asked))
    checks = table.checks(runs, asked) if table.checks else ()
    return TableResult(table.id, table.title, rows, _notes(table, runs, asked), checks)


def _setting_rows(table: TableSpec, runs: Runs, asked: Protocol) -> Iterator[Row]:
    """Measure by measure, encoders in the order of print."""
    for setting in table.settings:
        for column in setting.columns:
            for encoder in setting.encoders:
                if not asked.takes(encoder):
                    continue
                found = runs_of(setting.spec, encoder, runs, asked)
                values = read_values(column, found)
                if column.relative:
                    base = runs_of(setting.spec, column.relative, runs, asked)
                    alike = {seed for seed in found.keys() & base.keys() if found[seed].machine == base[seed].machine}
                    values = _relative(
                        {seed: value for seed, value in values.items() if seed in alike}, read_values(column, base)
                    )
                yield _row(table, setting.name, encoder, column, values, asked.seeds, _diverged(found))


def _contrast_rows(table: TableSpec, runs: Runs, asked: Protocol) -> Iterator[Row]:
    for contrast in table.contrasts:
        for first, second in contrast.encoders:
            if not asked.takes(first, second):
                continue
            a = runs_of(contrast.first, first, runs, asked)
            b = runs_of(contrast.second, second, runs, asked)
            both = differences(read_values(contrast.column, a), read_values(contrast.column, b))
            yield _row(table, contrast.name, first, contrast.column, both, asked.seeds, _diverged(a) + _diverged(b))


def _diverged(found: Mapping[int, RunResult]) -> int:
    return sum(run.diverged for run in found.values())


def read_values(column: Column, found: Mapping[int, RunResult]) -> dict[int, float]:
    """Seed → number, of runs that did not diverge and where it was measured."""
    read = {seed: column.of(run) for seed, run in found.items() if not run.diverged}
    return {seed: value for seed, value in read.items() if value is not None}


def _relative(values: Mapping[int, float], base: Mapping[int, float]) -> dict[int, float]:
    """Over the mean of the base's numbers of the same seeds; empty where there is none."""
    shared = [base[seed] for seed in values if seed in base]
    if not shared or not sum(shared):
        return {}
    mean = sum(shared) / len(shared)
    return {seed: value / mean for seed, value in values.items()}


def _row(
    table: TableSpec,
    setting: str,
    encoder: str,
    column: Column,
    values: Mapping[int, float],
    seeds: int,
    diverged: int,
) -> Row:
    """Judge one number: on the seeds of the printed table; by our spread over all seeds where none is printed."""
    wanted = min(seeds, published_seeds(table.id))
    printed_from = [value for seed, value in values.items() if seed < wanted]
    summary = spread(printed_from, population=table.population)
    overall = spread(list(values.values()), population=table.population)
    published = published_value(table.id, setting, encoder, column.name)
    mean = summary.known
    difference = None if published is None or mean is None else mean - published.mean
    rounding = 0.5 * max(10.0**-column.digits, column.grid)
    judged = verdict(mean, published, ours=overall.std, exact=column.exact, rounding=rounding)
    return Row(
        setting,
        encoder,
        column.name,
        column.title,
        column.digits,
        summary,
        wanted,
        diverged,
        overall,
        dict(values),
        bootstrap_interval(printed_from) if column.interval else None,
        published,
        difference,
        "" if column.timing else judged,
        p=None if column.timing or column.exact else _welch(table, summary, published),
    )


def _welch(table: TableSpec, ours: Spread, published: Published | None) -> float | None:
    if table.population or published is None or published.std is None:
        return None
    return welch(ours, Spread(published.mean, published.std, published_seeds(table.id)))


def adjust(tables: Sequence[TableResult]) -> tuple[TableResult, ...]:
    """Mark the numbers that count, constants and repeats left out, and adjust their p over all tables (Holm).

    A repeat is a measure of an encoder's runs that an earlier table has: Table 2 at C = 4 is Table 1.
    """
    seen: set[tuple[object, ...]] = set()
    marked = []
    for table in tables:
        rows = []
        for row in table.rows:
            key = (row.encoder, row.measure, *sorted(row.values.items()))
            rows.append(replace(row, counted=bool(row.verdict) and not row.constant and key not in seen))
            seen.add(key)
        marked.append(replace(table, rows=tuple(rows)))
    tested = [row.p for table in marked for row in table.rows if row.counted and row.p is not None]
    adjusted = iter(holm(tested))
    return tuple(
        replace(
            table,
            rows=tuple(
                replace(row, adjusted=next(adjusted)) if row.counted and row.p is not None else row
                for row in table.rows
            ),
        )
        for table in marked
    )


def _notes(table: TableSpec, runs: Runs, asked: Protocol) -> tuple[str, ...]:
    """Reading aids of the table, and runs that are not in it."""
    notes = [table.note] if table.note else []
    notes += said_of(table_runs(table, asked), runs)
    left = [name for name in dict.fromkeys(e for s in table.settings for e in s.encoders) if not asked.takes(name)]
    if left:
        notes.append(f"Left out: {', '.join(left)}.")
    return tuple(notes)


def said_of(specs: Sequence[RunSpec], runs: Runs) -> list[str]:
    """Runs that are missing, diverged or cut short."""
    notes = []
    missing = [spec for spec in specs if spec not in runs]
    if missing:
        named = ", ".join(dict.fromkeys(spec.encoder for spec in missing))
        notes.append(f"{len(missing)} of {_runs_are(len(specs))} missing ({named}).")
    there = [runs[spec] for spec in specs if spec in runs]
    diverged = [run.spec.id for run in there if run.diverged]
    if diverged:
        notes.append(f"{_runs_are(len(diverged))} in no mean, having diverged: {', '.join(diverged)}.")
    short = [run.stopped for run in there if run.cut]
    if short:
        notes.append(f"{_runs_are(len(short))} cut short, the shortest after epoch {min(short)}.")
    return notes


def _runs_are(number: int) -> str:
    return "1 run is" if number == 1 else f"{number} runs are"


PAIRED = "paired"
_PPE = ("linear-ppe", "linear")


@dataclass(frozen=True)
class PairedRow:
    """One comparison beside the printed one.

    Attributes:
        published: the printed test: setting, both encoders, difference, p, wins.
        measured: ours, NLL of the other less that of the better; none where the two encoders share no seed.
        interval: of the mean difference, by `bootstrap_interval`; none likewise, or with one seed.
        agrees: whether both say the same at the level 0.05; none where that cannot be said.
    """

    published: PublishedTest
    measured: Paired | None
    interval: tuple[float, float] | None
    agrees: bool | None


@dataclass(frozen=True)
class PairedTable:
    """All comparisons.

    Attributes:
        rows: in the order of print.
        notes: what is missing; wins of linear-ppe over all widths.
    """

    rows: tuple[PairedRow, ...]
    notes: tuple[str, ...]


def paired_runs(asked: Protocol) -> list[RunSpec]:
    """Runs that the tests need."""
    chosen = [
        SETTINGS[test.setting](encoder, seed, asked.epochs)
        for test in _chosen(asked)
        for encoder in (test.better, test.other)
        for seed in range(min(asked.seeds, test.n))
    ]
    return list(dict.fromkeys(chosen))


def compute_paired(runs: Runs, asked: Protocol) -> PairedTable:
    """Test the best losses of both encoders, seed by seed; diverged runs are left out."""
    rows = tuple(_paired_row(test, runs, asked) for test in _chosen(asked))
    notes = said_of(paired_runs(asked), runs)
    widths = [
        row.measured
        for row in rows
        if (row.published.better, row.published.other) == _PPE and row.published.setting in ("C=4", "d=128", "d=256")
    ]
    if len(widths) == 3 and all(widths):
        wins, n = sum(one.higher for one in widths if one), sum(one.difference.n for one in widths if one)
        notes.append(f"linear-ppe before linear over the three widths: {wins} of {n} seeds (printed: 56 of 60).")
    return PairedTable(rows, tuple(notes))


def _chosen(asked: Protocol) -> list[PublishedTest]:
    return [test for test in published_tests() if asked.takes(test.better, test.other)]


def _paired_row(test: PublishedTest, runs: Runs, asked: Protocol) -> PairedRow:
    alike = replace(asked, seeds=min(asked.seeds, test.n))
    better, other = (
        read_values(NLL_COLUMN, runs_of(SETTINGS[test.setting], encoder, runs, alike))
        for encoder in (test.better, test.other)
    )
    if not better.keys() & other.keys():
        return PairedRow(test, None, None, None)
    measured = paired(other, better)
    interval = bootstrap_interval(list(differences(other, better).values()))
    return PairedRow(test, measured, interval, agrees(measured.difference.mean, measured.p, test.difference, test.p))
