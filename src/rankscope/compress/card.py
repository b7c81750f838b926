"""Model card of a compressed folder, by its reports: made of what, by what, to which size, and how it is loaded."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from rankscope.checkpoints.sources import HUB_ID
from rankscope.choices import TRAINING_PRECISIONS
from rankscope.compress.heal.config import FILE, HealConfig, HealReport
from rankscope.compress.heal.config import read_report as read_healing
from rankscope.compress.recipe import RECIPE
from rankscope.compress.report import CompressReport
from rankscope.compress.write import REPORT
from rankscope.families import FAMILIES, Family
from rankscope.io import codec

CARD = "README.md"
"""File of a written folder that holds its model card."""
_FLAGS = {
    "minutes": "--minutes",
    "steps": "--steps",
    "train": "--train",
    "files": "--input",
    "freq": "--freq",
    "precision": "--dtype",
    "truth": "--truth",
    "learning_rate": "--learning-rate",
    "batch_size": "--batch-size",
    "seed": "--seed",
}
"""Options of a healing by the fields of their config, for the command of a card."""
_DTYPES = {precision: dtype for dtype, precision in TRAINING_PRECISIONS.items()}


def write_card(folder: Path, out: str | Path) -> None:
    """Write ``README.md``, with the metadata block that model hubs read.

    Args:
        folder: a folder that is being written, with its reports in it: a compression's, a healing's or both.
        out: what it will be.
    """
    name = Path(out).resolve().name
    compression = codec.read(CompressReport, folder / REPORT) if (folder / REPORT).is_file() else None
    healing = read_healing(folder)
    report = compression or healing
    assert report is not None, "a folder without a report has no card"
    family = FAMILIES[report.family]
    sections = [
        _metadata(report.model, family),
        f"# {name}",
        *(() if compression is None else _sizes(compression, family, name)),
        *_usage(family, name),
        "## How it was made",
        *(() if compression is None else _compression(compression, name, healing is not None)),
        *(() if healing is None else _healings(healing, None if compression is None else f"{name}-again")),
        *_cost(compression, report.model, family, name),
    ]
    (folder / CARD).write_text("\n\n".join(sections) + "\n", encoding="utf-8")


def _metadata(model: str, family: Family) -> str:
    from huggingface_hub import ModelCardData

    on_hub = HUB_ID.match(model) is not None and not Path(model).exists()
    data = ModelCardData(
        base_model=model if on_hub else None,
        library_name="chronos-forecasting" if family.forecastable else "transformers",
        pipeline_tag="time-series-forecasting" if family.forecastable else None,
        tags=["rankscope", "compressed", *(("time series", "forecasting") if family.forecastable else ())],
    )
    return f"---\n{data.to_yaml()}\n---"


def _sizes(report: CompressReport, family: Family, name: str) -> Iterator[str]:
    numbers = ", linear layers in int8" if report.storage == "int8" else ""
    yield (
        f"`{report.model}` ({family.title}) with {report.ratio:.3f} of its parameters{numbers}. It is derived from "
        "that model, whose licence applies."
    )
    rows = [f"| | `{report.model}` | `{name}` | |", "|---|---|---|---|"]
    for what, counts in (("parameters", report.parameters), ("bytes of weights", report.bytes)):
        before, after = counts["before"], counts["after"]
        rows.append(f"| {what} | {before:,} | {after:,} | {after / before:.3f} |")
    yield "\n".join(rows)


def _usage(family: Family, name: str) -> Iterator[str]:
    yield "## Use"
    if family.forecastable:
        load = f'from chronos import BaseChronosPipeline\n\npipeline = BaseChronosPipeline.from_pretrained("{name}")'
    else:
        load = (
            f'from transformers import AutoModelForSeq2SeqLM\n\nmodel = AutoModelForSeq2SeqLM.from_pretrained("{name}")'
        )
    yield f"```python\nimport rankscope  # registers the class, which transformers does not have\n{load}\n```"


def _compression(report: CompressReport, name: str, healed: bool) -> Iterator[str]:
    again = "Again, before healing:" if healed else "Again:"
    seen = "" if report.calibration is None else f", calibrated on `{report.calibration}`"
    refined = f"; {report.refined} matrices refitted to the original's residual stream" if report.refined else ""
    if report.recast:
        yield f"Stored in other number formats; nothing was cut. [{RECIPE}]({RECIPE}) has the options. {again}"
    else:
        yield (
            f"Method `{report.method}`, allocation `{report.allocation}`{seen}{refined}. [{RECIPE}]({RECIPE}) has all "
            f"options and the release, [{REPORT}]({REPORT}) the rank and the error of every matrix. {again}"
        )
    words = [report.model, "--recipe", f"{name}/{RECIPE}", "--out", f"{name}-again"]
    yield f"```console\n$ rankscope compress {shlex.join(words)}\n```"
    yield from report.notes


def _healings(last: HealReport, student: str | None) -> Iterator[str]:
    """Say each healing, and the commands; the first is of ``student``, or of the model that it was of."""
    every, commands = (*last.earlier, codec.plain(last)), []
    place = student or every[0]["model"]
    for one in every:
        yield f"Healed by distillation from `{one['teacher']}`: {one['steps']:,} steps."
        words = [place, "--teacher", one["teacher"]]
        for name, flag in _FLAGS.items():
            value = one["options"].get(name)  # reports of earlier releases have fewer
            if value not in (None, [], getattr(HealConfig, name)):
                words += [flag, ",".join(value) if isinstance(value, list) else _DTYPES.get(value, value)]
        for column, value in (one["options"].get("columns") or {}).items():
            if value is not None:
                words += [f"--{column}-column", value]
        place = f"{place.rstrip('/')}-healed"
        commands.append(f"$ rankscope heal {shlex.join(map(str, words))} --out {shlex.quote(place)}")
    yield f"[{FILE}]({FILE}) has all options. Again:\n\n```console\n" + "\n".join(commands) + "\n```"


def _cost(report: CompressReport | None, model: str, family: Family, name: str) -> Iterator[str]:
    quoted, made = shlex.quote(model), shlex.quote(name)
    yield "## Accuracy"
    if report is not None and report.search is not None:
        search = report.search
        yield f"{search.measure}: {search.score:.4f}, at most {1 + search.max_loss:g} was allowed."
    if family.forecastable:
        yield f"WQL and MASE beside the original's:\n\n```console\n$ rankscope eval {made} --baseline {quoted}\n```"
    else:
        yield f"Log-perplexity by size:\n\n```console\n$ rankscope table2 {quoted} --text FILE --out table/\n```"
