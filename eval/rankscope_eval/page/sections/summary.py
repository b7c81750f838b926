"""The summary: a few key numbers and plain sentences per model, all of them computed from the results."""

from __future__ import annotations

import math

from rankscope.measure.tradeoff import DONE, Table2Report, Table2Row
from rankscope_eval.bench.report import BenchRatio, BenchReport, BenchRow
from rankscope_eval.page.lineage import Group, Library
from rankscope_eval.page.numbers import change, count, duration, percent, plural, ratio, short_count, size
from rankscope_eval.page.parts import Part, Section
from rankscope_eval.page.sections.models import facts
from rankscope_eval.page.sections.waste import SIGNALS, spectrum_sentence
from rankscope_eval.relative import Interval
from rankscope_eval.report import ALL, EvalSummary

HELD = 1.02
"""A relative score up to this is said to be within 2 % of the original's."""


def summary_section(library: Library) -> Section:
    """Key numbers and sentences of every model."""
    parts = [
        Part(group.root if len(library.groups) > 1 else "", numbers=numbers, points=said)
        for group in library.groups
        if (numbers := key_numbers(library, group)) + (said := sentences(library, group))
    ]
    theory = [check for one in library.of("theory") for check in one.content.checks]
    if theory:
        held = sum(check.passed for check in theory)
        parts.append(Part(text=f"{held} of {plural(len(theory), 'check')} of theorems hold."))
    return Section("summary", "Summary", "Summary", parts)


def sentences(library: Library, group: Group) -> list[str]:
    """Return one sentence for each result of a group."""
    return [
        *_identity(library, group),
        *_ranks(library, group),
        *_embeddings(library, group),
        *_sizes(library, group),
        *_tables(library, group),
        *_scores(library, group),
        *_times(library, group),
    ]


def key_numbers(library: Library, group: Group) -> list[tuple[str, str]]:
    """At most four numbers: of the smallest compression that was made and of what it costs, or of the model's ranks."""
    made = sorted(library.about("compress", group), key=lambda one: one.content.bytes["after"])
    if not made:
        alone = library.about("spectrum", Group(group.root, (group.root,)))[:1]
        shares = [pair for one in alone for pair in one.content.size_ratio.items()]
        return [(percent(value), f"of the numbers suffice at ε = {eps}") for eps, value in shares[:3]]
    one = made[0].content
    out = library.resolve(one.out)
    before, after = one.parameters["before"], one.parameters["after"]
    found = [
        (percent(one.ratio), f"of the numbers in the selected matrices, method {one.method}"),
        (change(before, after), f"parameters: {short_count(before)} → {short_count(after)}"),
    ]
    score = next((row for row in _relative(library, group) if library.resolve(row.model) == out), None)
    if score is not None and math.isfinite(score.relative_WQL):
        says = f"times the WQL of {score.baseline}, {plural(score.datasets, 'data set')}"
        found.append((ratio(score.relative_WQL), says))
    timed = [pair for pair in _timed(library, group) if library.resolve(pair[0].model) == out]
    if timed:
        row, beside, _ = max(timed, key=lambda pair: pair[0].batch)
        says = f"times the time of {beside.baseline}, {row.label} at batch {row.batch}"
        found.append((ratio(beside.seconds.median), says))
    return found


def _identity(library: Library, group: Group) -> list[str]:
    one = facts(library, group.root)
    if not one.family and not one.parameters:
        return []
    kind = f" is a {one.family} model" if one.family else " is a model"
    many = f" of {count(one.parameters)} parameters" if one.parameters else ""
    heavy = f" ({size(one.bytes)})" if one.parameters and one.bytes else ""
    return [one.name + kind + many + heavy + (f": {one.shape}." if one.shape else ".")]


def _ranks(library: Library, group: Group) -> list[str]:
    alone = Group(group.root, (group.root,))
    return [spectrum_sentence(one.content) for one in library.about("spectrum", alone)[:1]]


def _embeddings(library: Library, group: Group) -> list[str]:
    said = []
    for document in library.of("embed")[:1]:
        report = document.content
        eps = next(iter(report.rows[0].eps_ranks))
        rows = [row for row in report.rows if library.resolve(row.model) == group.root and row.matrix == "corpus"]
        said += [
            f"Its embedding of {SIGNALS.get(report.signal, report.signal)} has ε-rank {row.eps_ranks[eps]} of "
            f"{min(row.tokens, row.d_model)} at ε = {eps}."
            for row in rows[:1]
        ]
    return said


def _sizes(library: Library, group: Group) -> list[str]:
    made = [document.content for document in library.about("compress", group)]
    return [
        f"{one.out}: method {one.method} keeps {percent(one.ratio)} of the numbers in the selected matrices; the "
        f"weights go from {size(one.bytes['before'])} to {size(one.bytes['after'])} "
        f"({change(one.bytes['before'], one.bytes['after'])})."
        for one in made
    ]


def _tables(library: Library, group: Group) -> list[str]:
    return [
        line
        for document in library.about("table2", group)
        for line in table_sentence(
            document.content, f"{document.path}, {document.content.settings.get('suite') or 'text'}"
        )
    ]


def table_sentence(report: Table2Report, where: str) -> list[str]:
    """The smallest compression of a table that holds its score within `HELD`."""
    text = any(row.median.relative_LPPL is not None for row in report.rows)
    name, what = ("relative_LPPL", "log-perplexity") if text else ("relative_WQL", "WQL")

    def score(row: Table2Row) -> float:
        return float(getattr(row.median, name))

    rows = [row for row in report.rows if row.state == DONE and getattr(row.median, name) is not None]
    held = [(row.median.reached, score(row), row) for row in rows if score(row) <= HELD]
    reached = [(size_, cost, row) for size_, cost, row in held if size_ is not None]
    if reached:
        size_, cost, row = min(reached, key=lambda one: one[:2])
        return [
            f"Of {plural(len(rows), 'compression')} measured ({where}), the smallest whose {what} stays within "
            f"{100 * (HELD - 1):.0f} % of the original’s is {row.method} at size ratio {ratio(size_)}: {ratio(cost)}."
        ]
    if not rows:
        return []
    none = f"None of {plural(len(rows), 'compression')} measured ({where}) keeps its {what} within "
    return [f"{none}{100 * (HELD - 1):.0f} % of the original’s."]


def _relative(library: Library, group: Group) -> list[EvalSummary]:
    """Relative scores of the group's models, over all data sets where there are several benchmarks."""
    found = []
    for document in library.of("eval"):
        by_model: dict[str, list[EvalSummary]] = {}
        for one in document.content.summary:
            if one.model != one.baseline and library.resolve(one.model) in group.members:
                by_model.setdefault(one.model, []).append(one)
        found += [next((row for row in rows if row.benchmark == ALL), rows[0]) for rows in by_model.values()]
    return found


def _scores(library: Library, group: Group) -> list[str]:
    return [
        f"{one.model} scores {ratio(one.relative_WQL)} times the WQL{_within(one.WQL_interval)} and "
        f"{ratio(one.relative_MASE)} times the MASE{_within(one.MASE_interval)} of "
        f"{one.baseline} over {plural(one.datasets, 'data set')}"
        + (" (lower is better)." if one.benchmark == ALL else f" of {one.benchmark} (lower is better).")
        for one in _relative(library, group)
    ]


def _within(interval: Interval | None) -> str:
    return "" if interval is None else f" (95 %: {ratio(interval[0])} to {ratio(interval[1])})"


def _timed(library: Library, group: Group) -> list[tuple[BenchRow, BenchRatio, BenchReport]]:
    """Cases of the group's models beside another one that was timed in turns with them."""
    found = []
    for document in library.of("bench"):
        report = document.content
        over = {(one.label, one.batch): one for one in report.ratios if one.label != one.baseline}
        for row in report.rows:
            if library.resolve(row.model) in group.members and (row.label, row.batch) in over:
                found.append((row, over[row.label, row.batch], report))
    return found


def _times(library: Library, group: Group) -> list[str]:
    timed = _timed(library, group)
    largest = {id(report): max(row.batch for row, _, other in timed if other is report) for _, _, report in timed}
    return [
        f"{row.label} forecasts a batch of {row.batch} in {duration(row.seconds.median)}, "
        f"{ratio(beside.seconds.median)} times what {beside.baseline} takes "
        f"({ratio(beside.seconds.min)} to {ratio(beside.seconds.max)} over {plural(report.rounds, 'round')})."
        for row, beside, report in timed
        if row.batch == largest[id(report)]
    ]
