"""From runs to rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rankscope_lab.encoders.cell import EPOCHS, Cell, RunResult
from rankscope_lab.encoders.published import published_seeds, published_value, verdict
from rankscope_lab.encoders.tables.record import Column, Row, Runs, TableResult, TableSpec, runs_of
from rankscope_lab.statistics import bootstrap_interval, differences, spread


def table_cells(spec: TableSpec, seeds: int, epochs: int = EPOCHS, encoders: Sequence[str] | None = None) -> list[Cell]:
    """Runs that a table needs, encoder by encoder: as many seeds as it was printed from, ``seeds`` at most."""
    settings = [(setting.cell, setting.encoders) for setting in spec.settings]
    return [
        cell(encoder, seed, epochs)
        for cell, names in settings
        for encoder in names
        if encoders is None or encoder in encoders
        for seed in range(min(seeds, published_seeds(spec.id)))
    ]


def compute_table(
    spec: TableSpec, runs: Runs, seeds: int, epochs: int = EPOCHS, encoders: Sequence[str] | None = None
) -> TableResult:
    """Rows of a table from the runs there are.

    Args:
        spec: which table.
        runs: cell → result; those that a table needs and that are not here are said to be missing.
        seeds: how many are asked for: 0, 1, … below it.
        epochs: of the runs.
        encoders: only these; none: all of the table.
    """
    rows = [
        *_setting_rows(spec, runs, seeds, epochs, encoders),
        *_contrast_rows(spec, runs, seeds, epochs, encoders),
    ]
    checks = spec.checks(runs, seeds, epochs, encoders) if spec.checks else ()
    return TableResult(spec.id, spec.title, tuple(rows), _notes(spec, runs, seeds, epochs, encoders), checks)


def _setting_rows(
    spec: TableSpec, runs: Runs, seeds: int, epochs: int, encoders: Sequence[str] | None
) -> Iterator[Row]:
    """Measure by measure, encoders in the order of print."""
    for setting in spec.settings:
        for column in setting.columns:
            for encoder in setting.encoders:
                if encoders is not None and encoder not in encoders:
                    continue
                found = runs_of(setting.cell, encoder, runs, seeds, epochs)
                values = read_values(column, found)
                if column.relative:
                    base = runs_of(setting.cell, column.relative, runs, seeds, epochs)
                    alike = {seed for seed in found.keys() & base.keys() if found[seed].machine == base[seed].machine}
                    values = _relative(
                        {seed: value for seed, value in values.items() if seed in alike}, read_values(column, base)
                    )
                yield _row(spec, setting.name, encoder, column, values, seeds, _diverged(found))


def _contrast_rows(
    spec: TableSpec, runs: Runs, seeds: int, epochs: int, encoders: Sequence[str] | None
) -> Iterator[Row]:
    for contrast in spec.contrasts:
        for first, second in contrast.encoders:
            if encoders is not None and not {first, second} <= set(encoders):
                continue
            a = runs_of(contrast.first, first, runs, seeds, epochs)
            b = runs_of(contrast.second, second, runs, seeds, epochs)
            both = differences(read_values(contrast.column, a), read_values(contrast.column, b))
            yield _row(spec, contrast.name, first, contrast.column, both, seeds, _diverged(a) + _diverged(b))


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
    spec: TableSpec,
    setting: str,
    encoder: str,
    column: Column,
    values: Mapping[int, float],
    seeds: int,
    diverged: int,
) -> Row:
    """Judge one number: on the seeds of the printed table; by our spread over all seeds where none is printed."""
    wanted = min(seeds, published_seeds(spec.id))
    printed_from = [value for seed, value in values.items() if seed < wanted]
    summary = spread(printed_from, population=spec.population)
    overall = spread(list(values.values()), population=spec.population)
    published = published_value(spec.id, setting, encoder, column.name)
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
    )


def _notes(spec: TableSpec, runs: Runs, seeds: int, epochs: int, encoders: Sequence[str] | None) -> tuple[str, ...]:
    """How to read the table, and what is not in it."""
    notes = [spec.note] if spec.note else []
    notes += said_of(table_cells(spec, seeds, epochs, encoders), runs)
    if encoders is not None:
        left = [name for name in dict.fromkeys(e for s in spec.settings for e in s.encoders) if name not in encoders]
        if left:
            notes.append(f"Left out: {', '.join(left)}.")
    return tuple(notes)


def said_of(cells: Sequence[Cell], runs: Runs) -> list[str]:
    """Runs that are missing, diverged or cut short."""
    notes = []
    missing = [cell for cell in cells if cell not in runs]
    if missing:
        named = ", ".join(dict.fromkeys(cell.encoder for cell in missing))
        notes.append(f"{len(missing)} of {_runs_are(len(cells))} missing ({named}).")
    there = [runs[cell] for cell in cells if cell in runs]
    diverged = [run.cell.id for run in there if run.diverged]
    if diverged:
        notes.append(f"{_runs_are(len(diverged))} in no mean, having diverged: {', '.join(diverged)}.")
    short = [run.stopped for run in there if run.cut]
    if short:
        notes.append(f"{_runs_are(len(short))} cut short, the shortest after epoch {min(short)}.")
    return notes


def _runs_are(number: int) -> str:
    return "1 run is" if number == 1 else f"{number} runs are"
