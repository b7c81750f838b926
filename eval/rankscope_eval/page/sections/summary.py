"""The summary: a few key numbers and plain sentences per model, all of them computed from the results."""

from __future__ import annotations

import math

from rankscope.compress import CompressReport
from rankscope.measure.tradeoff import DONE, Table2Report, Table2Row, Verdict
from rankscope.series.signals import TITLES
from rankscope_eval.bench.report import BenchRatio, BenchReport, BenchRow
from rankscope_eval.numbers import change, count, duration, percent, plural, ratio, short_count, size
from rankscope_eval.page.documents import checks_held
from rankscope_eval.page.lineage import Group, Library
from rankscope_eval.page.parts import KeyNumber, Part, Section
from rankscope_eval.page.sections.models import facts
from rankscope_eval.page.sections.scores import TONES
from rankscope_eval.page.sections.waste import spectrum_sentence
from rankscope_eval.relative import Interval
from rankscope_eval.report import ALL, EvalSummary
from rankscope_eval.verdict import MARGIN, WORSE

LEFT_OF_SELECTED = "of the parameters of the selected matrices"
HELD = 1 + MARGIN
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
        parts.append(Part(text=checks_held(theory)))
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


def key_numbers(library: Library, group: Group) -> list[KeyNumber]:
    """At most five numbers: of the smallest compression that was made and of what it costs, or of the model's ranks."""
    made = sorted(library.about("compress", group), key=lambda one: one.content.bytes["after"])
    if not made:
        alone = library.about("spectrum", Group(group.root, (group.root,)))[:1]
        shares = [pair for one in alone for pair in one.content.size_ratio.items()]
        return [KeyNumber(percent(value), f"of the parameters suffice at ε = {eps}") for eps, value in shares[:3]]
    one = made[0].content
    out = library.resolve(one.out)
    before, after = one.parameters["before"], one.parameters["after"]
    found = [
        KeyNumber(change(before, after), f"parameters of the whole model: {short_count(before)} → {short_count(after)}")
    ]
    if one.recast:
        found.append(
            KeyNumber(change(one.bytes["before"], one.bytes["after"]), "bytes of weights, by number formats alone")
        )
    elif one.selected_parameters["before"] < before:
        found.append(KeyNumber(percent(one.selected_ratio), f"{LEFT_OF_SELECTED}, method {one.method}"))
    score = next((row for row in _relative(library, group) if library.resolve(row.model) == out), None)
    if score is not None:
        found += [
            _scored(metric, value, score, verdict)
            for metric, value, verdict in (
                ("WQL", score.relative_WQL, score.WQL_verdict),
                ("MASE", score.relative_MASE, score.MASE_verdict),
            )
            if math.isfinite(value)
        ]
    timed = [pair for pair in _timed(library, group) if library.resolve(pair[0].model) == out]
    if timed:
        row, beside, _ = max(timed, key=lambda pair: pair[0].batch)
        says = f"times the time of {beside.baseline}, {row.label} at batch {row.batch}"
        low, high = beside.seconds.min, beside.seconds.max
        tone, word = ("better", "faster") if high < 1 else ("worse", "slower") if low > 1 else ("open", "not shown")
        found.append(KeyNumber(ratio(beside.seconds.median), says, word, tone))
    return found


def _scored(metric: str, value: float, score: EvalSummary, verdict: Verdict | None) -> KeyNumber:
    """Tile of a relative score, with its verdict; worse on a data set by its own interval is worse."""
    says = f"times the {metric} of {score.baseline}, {plural(score.datasets, 'data set')}"
    if verdict is None:
        return KeyNumber(ratio(value), says)
    words, tone = str(verdict), TONES[verdict.word]
    if verdict.worse_there:
        also = "most" if verdict.word == WORSE else "but worse"
        words, tone = f"{words}, {also} on {verdict.worst}: {ratio(verdict.worst_ratio)}", "worse"
    elif verdict.worst is not None and score.datasets > 1:
        words += f"; worst on {verdict.worst}: {ratio(verdict.worst_ratio)}"
    return KeyNumber(ratio(value), says, words, tone)


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
            f"Its embedding of {TITLES.get(report.signal, report.signal)} has ε-rank {row.eps_ranks[eps]} of "
            f"{min(row.tokens, row.d_model)} at ε = {eps}."
            for row in rows[:1]
        ]
    return said


def _sizes(library: Library, group: Group) -> list[str]:
    made = [document.content for document in library.about("compress", group)]
    return [
        f"{one.out}: {_kept(one)}; the weights go from {size(one.bytes['before'])} to {size(one.bytes['after'])} "
        f"({change(one.bytes['before'], one.bytes['after'])})."
        for one in made
    ]


def _kept(one: CompressReport) -> str:
    if one.recast:
        return "other number formats"
    whole = one.selected_parameters["before"] == one.parameters["before"]
    return (
        f"method {one.method} keeps {percent(one.selected_ratio)} {'of all parameters' if whole else LEFT_OF_SELECTED}"
    )


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
    if report.judgements:
        return _judged_sentence(report, where)
    held = [(row.median.reached, score(row), row) for row in rows if score(row) <= HELD]
    reached = [(size_, cost, row) for size_, cost, row in held if size_ is not None]
    if reached:
        size_, cost, row = min(reached, key=lambda one: one[:2])
        return [
            f"Of {plural(len(rows), 'compression')} measured ({where}), the smallest with a {what} of at most {HELD:g} "
            f"times the original’s, by medians without intervals, is {row.method} at {ratio(size_)} of the attention: "
            f"{ratio(cost)}."
        ]
    if not rows:
        return []
    none = f"None of {plural(len(rows), 'compression')} measured ({where}) keeps its {what} within "
    return [f"{none}{100 * (HELD - 1):.0f} % of the original’s."]


def _judged_sentence(report: Table2Report, where: str) -> list[str]:
    """The smallest compression whose WQL and MASE are both held within the margin."""
    rows = [(row, row.judgement) for row in report.rows if row.judgement is not None]
    margin = rows[0][1].WQL_verdict.margin
    passing = ("held", "better", "no worse")
    held = [
        (row.median.reached or row.ratio, row, one)
        for row, one in rows
        if one.WQL_verdict.word in passing and one.MASE_verdict.word in passing
    ]
    many, share = plural(len(rows), "compression"), f"{100 * margin:g} %"
    if not held:
        return [f"Of {many} measured ({where}), none is shown to lose at most {share} of WQL and MASE."]
    reached, row, one = min(held, key=lambda each: each[0])
    return [
        f"Of {many} measured ({where}), the smallest that is shown to lose at most {share} of WQL and MASE is "
        f"{row.method} at {ratio(reached)} of the attention: WQL {ratio(one.relative_WQL)}{_within(one.WQL_interval)}, "
        f"MASE {ratio(one.relative_MASE)}{_within(one.MASE_interval)}."
    ]


def _relative(library: Library, group: Group) -> list[EvalSummary]:
    """Relative scores of the group's models, over all data sets where there are several benchmarks."""
    found = []
    for document in library.of("eval"):
        by_model: dict[str, list[EvalSummary]] = {}
        for one in document.content.summary:
            if one.datasets and one.model != one.baseline and library.resolve(one.model) in group.members:
                by_model.setdefault(one.model, []).append(one)
        found += [next((row for row in rows if row.benchmark == ALL), rows[0]) for rows in by_model.values()]
    return found


def _scores(library: Library, group: Group) -> list[str]:
    return [
        f"{one.model} scores {ratio(one.relative_WQL)} times the WQL{_within(one.WQL_interval)} and "
        f"{ratio(one.relative_MASE)} times the MASE{_within(one.MASE_interval)} of "
        f"{one.baseline} over {plural(one.datasets, 'data set')}"
        + (" (lower is better)." if one.benchmark == ALL else f" of {one.benchmark} (lower is better).")
        + _verdicts(one)
        for one in _relative(library, group)
    ]


def _verdicts(one: EvalSummary) -> str:
    """Both verdicts as a sentence, and where a data set is shown to be worse."""
    if one.WQL_verdict is None or one.MASE_verdict is None:
        return ""
    both = (("WQL", one.WQL_verdict), ("MASE", one.MASE_verdict))
    worst = "".join(
        f" {metric} is shown to be worse on {verdict.worst} ({ratio(verdict.worst_ratio)})."
        for metric, verdict in both
        if verdict.worse_there
    )
    if all(verdict.interval is None for _, verdict in both):
        return worst
    return f" Verdicts: WQL {one.WQL_verdict}, MASE {one.MASE_verdict}.{worst}"


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
