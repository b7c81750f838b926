"""Options shared by several verbs, and parsers for their values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from rankscope import choices
from rankscope.choices import DEVICES, LARGEST_SEED, known_device
from rankscope.errors import OptionError, unknown_choice
from rankscope_cli.exits import say

if TYPE_CHECKING:
    from rankscope.checkpoints import Checkpoint
    from rankscope_eval import Forecasting

OUTPUT, RUNTIME, SCORES, SPREAD, SERIES = "Output", "Runtime", "Scores", "Execution", "Input series"
"""Help panels shared by several verbs."""
_WIDEST = 24
"""Widest list of choices, in columns, shown as a metavar."""
_WHOLE = r"[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,3}(?:_[0-9]{3})+|[0-9]*"
_QUANTITY = re.compile(rf"((?:{_WHOLE})(?:\.[0-9]*)?(?:e\+?[0-9]+)?)\s*([kmg]?)(i?b)?", re.IGNORECASE)


def not_empty(parameter: typer.CallbackParam, given: Any) -> Any:
    """Validate the value of an argument or option and return it.

    Raises:
        OptionError: it is empty, as where a variable of the shell is not set.
    """
    empty = given == "" or (isinstance(given, list) and any(not one.strip(" ,") for one in given))
    if empty and given != parameter.default:
        name = next((flag for flag in parameter.opts if flag.startswith("--")), parameter.metavar)
        raise OptionError(f"{name} is empty: give a value{'' if parameter.required else ', or leave it out'}.")
    return given


def argument(metavar: str, help: str) -> Any:
    """Declare a positional argument."""
    return typer.Argument(metavar=metavar, help=help, show_default=False, callback=not_empty)


def value(
    flag: str, metavar: str | None, help: str, panel: str | None = None, short: str | None = None, **limits: Any
) -> Any:
    """Declare an option with a value; ``limits`` go to `typer.Option` (``min``, ``max``, ``callback``, …)."""
    flags = (flag,) if short is None else (flag, short)
    limits = {"callback": not_empty, **limits}
    return typer.Option(*flags, metavar=metavar, help=help, rich_help_panel=panel, **limits)


def count(flag: str, help: str, panel: str | None = None, short: str | None = None) -> Any:
    """Declare an option that takes a positive integer."""
    return value(flag, "N", help, panel, short, min=1)


def choice(flag: str, kind: Any, help: str, panel: str | None = None, short: str | None = None) -> Any:
    """Declare an option with the values of a ``Literal`` as choices; long lists of choices move to the help text."""
    words = get_args(kind)
    metavar = "|".join(words)
    if len(metavar) > _WIDEST:
        metavar, help = "NAME", f"{help} One of {', '.join(words)}."
    return value(flag, metavar, help, panel, short)


def switch(flag: str, help: str, panel: str | None = None) -> Any:
    """Declare a flag."""
    return value(flag, None, help, panel)


def dtype(help: str) -> Any:
    """Declare ``--dtype``."""
    return choice("--dtype", choices.Dtype, help, RUNTIME)


def out_folder(help: str) -> Any:
    """Declare ``--out DIR`` for a verb that writes a folder."""
    return value("--out", "DIR", help, OUTPUT, "-o")


Model = Annotated[
    str | None,
    argument("MODEL", "Hub id, local folder or bundled name (default: bundled, a Chronos-T5)."),
]
Models = Annotated[
    list[str] | None,
    argument("MODEL", "Hub ids, local folders or bundled names (default: bundled)."),
]
Eps = Annotated[
    list[str] | None,
    value("--eps", "E,…", "Tolerances ε in [0, 1); repeatable (default: 0.1,0.05,0.01).", short="-e"),
]
Sites = Annotated[
    list[str] | None,
    value(
        "--sites",
        "WORD,…",
        "Matrices to select: q k v o attention mlp embedding head all; restrict with encoder decoder self cross group "
        "(default: attention).",
        short="-s",
    ),
]
LinearSites = Annotated[
    list[str] | None,
    value(
        "--sites",
        "WORD,…",
        "Matrices to select: q k v o attention mlp embedding head all; restrict with encoder decoder self cross group "
        "(default: all linear layers; attention with compress --eps or --attention-ratio).",
        short="-s",
    ),
]
Signal = Annotated[
    str | None,
    value("--signal", "NAME|FILE", "Input series: sine (default), exponential, constant, noise, mixed, or a file."),
]
Count = Annotated[int, count("--n", "Number of input series.")]
Length = Annotated[int | None, count("--length", "Length of each series (default: 512).")]
LENGTH = 512
"""Default of --length."""
Text = Annotated[str | None, value("--text", "FILE", "Corpus for text models: UTF-8 text, optionally gzipped.")]
Samples = Annotated[int, count("--num-samples", "Sample paths per series (sampling models only).")]
Horizon = Annotated[int, value("--horizon", "STEPS", "Forecast horizon in steps.", short="-H", min=1)]
Input = Annotated[
    str | None, value("--input", "FILE", "Evaluate on these series instead of a suite; needs --horizon.", SERIES, "-i")
]
InputHorizon = Annotated[
    int | None, value("--horizon", "STEPS", "Steps that each window forecasts.", SERIES, "-H", min=1)
]
Windows = Annotated[
    int | None, count("--windows", "Windows to forecast at the end of each series, back to back (default: 1).", SERIES)
]
Freq = Annotated[str | None, value("--freq", "F", "Frequency (h, D, W, M, …) if it cannot be inferred.", SERIES)]
SeasonLength = Annotated[int | None, count("--season-length", "Season length (default: from the frequency).", SERIES)]
IdColumn = Annotated[str | None, value("--id-column", "NAME", "Column with series ids.", SERIES)]
TimeColumn = Annotated[str | None, value("--time-column", "NAME", "Column with timestamps.", SERIES)]
TargetColumn = Annotated[str | None, value("--target-column", "NAME", "Column with values.", SERIES)]
ScoreData = Annotated[str | None, value("--data", "DIR", "Folder with local data files.", SCORES)]
MaxSeries = Annotated[int | None, count("--max-series", "Use only the first N series of each data set.", SCORES)]
Resume = Annotated[bool, switch("--resume", "Resume from the latest snapshot of an interrupted run.")]
Seeds = Annotated[int | None, count("--seeds", "Runs (seeds) per setting (default: 3).")]
EngineName = Annotated[
    choices.Engine, choice("--engine", choices.Engine, "Run on this machine or on a Ray cluster.", SPREAD)
]
Address = Annotated[
    str,
    value("--address", "A", "Ray cluster: auto, host:port or ray://host:port (default: start Ray locally).", SPREAD),
]
Precision = Annotated[choices.TrainingDtype, choice("--precision", choices.TrainingDtype, "Matmul precision.", SPREAD)]
Out = Annotated[
    str | None, value("--out", "FILE", "Also write the result to FILE (.csv, .parquet or .json).", OUTPUT, "-o")
]
Figures = Annotated[str | None, value("--figures", "DIR", "Also save figures to DIR, as PNG and SVG.", OUTPUT)]
Json = Annotated[bool, switch("--json", "Print the result as JSON on stdout.", OUTPUT)]
Force = Annotated[bool, switch("--force", "Overwrite existing output.", OUTPUT)]
BatchSize = Annotated[int, count("--batch-size", "Series per batch.", RUNTIME)]
Seed = Annotated[int, value("--seed", "N", "Random seed.", RUNTIME, min=0, max=LARGEST_SEED)]
Device = Annotated[str, value("--device", "|".join(DEVICES), "Device to run on.", RUNTIME, callback=known_device)]
ComputeDtype = Annotated[
    choices.Dtype | None,
    choice(
        "--dtype",
        choices.Dtype,
        "Compute dtype (default: as stored; float32 on a CPU that has no instructions for that).",
        RUNTIME,
    ),
]
TrainingDtype = Annotated[
    choices.TrainingDtype | None,
    choice(
        "--dtype",
        choices.TrainingDtype,
        "Compute dtype (default: auto, bfloat16 where the device multiplies it faster).",
        RUNTIME,
    ),
]
Runtime = Annotated[
    choices.Runtime,
    choice("--runtime", choices.Runtime, "Inference runtime: rankscope's, chronos-forecasting's, or auto.", RUNTIME),
]
Revision = Annotated[str | None, value("--revision", "REV", "Hub revision: branch, tag or commit.", RUNTIME)]
Debug = Annotated[bool, switch("--debug", "Show the full traceback on errors.", RUNTIME)]


def words(values: Sequence[str] | None) -> tuple[str, ...] | None:
    """Split a list option that is repeated, comma-separated, or both; return None if it is not given.

    >>> words(["q,k", "v"])
    ('q', 'k', 'v')
    """
    if values is None:
        return None
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


def numbers(parameter: str, values: Sequence[str] | None, default: Sequence[float]) -> tuple[float, ...]:
    """Parse a list option of floats; drop duplicates, keep the order.

    Raises:
        OptionError: an item is not a number.

    >>> numbers("eps", ["0.1,0.05", "0.1"], ())
    (0.1, 0.05)
    """
    parts = words(values)
    if parts is None:
        return tuple(default)
    try:
        return tuple(dict.fromkeys(float(part) for part in parts))
    except ValueError:
        raise OptionError(f"--{parameter} {','.join(parts)!r} is not a list of numbers, such as 0.1,0.05.") from None


def whole_numbers(
    parameter: str, values: Sequence[str] | None, default: Sequence[int], least: int = 0
) -> tuple[int, ...]:
    """Parse a list option of integers; drop duplicates, keep the order.

    Raises:
        OptionError: the list is empty, or an item is not an integer or below ``least``.

    >>> whole_numbers("batch", ["1,8", "8"], ())
    (1, 8)
    """
    parts = words(values)
    if parts is None:
        return tuple(default)
    if not parts or not all(part.isdecimal() and int(part) >= least for part in parts):
        raise OptionError(
            f"--{parameter} {','.join(parts)!r} is not a list of integers of at least {least}, such as 1,8,32."
        )
    return tuple(dict.fromkeys(int(part) for part in parts))


def quantity(flag: str, text: str | None, *, of_bytes: bool) -> float | None:
    """Parse a number that may have separators and a unit, as the tables print it; units are powers of 1,000.

    Args:
        flag: the option.
        text: its value.
        of_bytes: whether units of bytes are allowed; those with an ``i`` are powers of 1,024.

    Raises:
        OptionError: it is not such a number.

    >>> quantity("--parameters", "2,595,801", of_bytes=False), quantity("--parameters", "2.6 M", of_bytes=False)
    (2595801.0, 2600000.0)
    >>> quantity("--bytes", "4e6", of_bytes=True), quantity("--bytes", "16MiB", of_bytes=True)
    (4000000.0, 16777216.0)
    >>> quantity("--parameters", "2,6M", of_bytes=False)
    Traceback (most recent call last):
    rankscope.errors.OptionError: --parameters '2,6M' is not a number, such as 5000000 or 5M.
    """
    if text is None:
        return None
    found = _QUANTITY.fullmatch(text.strip())
    number, unit, ending = found.groups(default="") if found is not None else ("", "", "")
    binary = ending.lower() == "ib"
    if not number.strip(".") or number[0] in "eE" or (ending and not of_bytes) or (binary and not unit):
        example = "5000000, 5MB or 5MiB" if of_bytes else "5000000 or 5M"
        raise OptionError(f"{flag} {text!r} is not a number{' of bytes' if of_bytes else ''}, such as {example}.")
    step = 1024 if binary else 1000
    plain = float(number.replace(",", "").replace("_", ""))
    return float(round(plain * step ** " kmg".index(unit.lower()))) if unit else plain


def signal_or_file(signal: str | None) -> tuple[str, str | None]:
    """Split the value of ``--signal`` into a signal name and a file path.

    Raises:
        OptionError: neither a known signal nor a file.

    >>> signal_or_file("sine"), signal_or_file("my/series.csv")
    (('sine', None), ('user', 'my/series.csv'))
    """
    from pathlib import Path

    from rankscope.series.signals import SIGNALS

    if signal is None or signal in SIGNALS:
        return signal or "sine", None
    if Path(signal).suffix or Path(signal).exists():
        return "user", signal
    raise OptionError(unknown_choice("--signal", signal, SIGNALS, "Or give a file of series."))


def refuse_cuda(device: str, why: str) -> None:
    """Raise `OptionError` if a GPU is requested from a CPU-only verb."""
    if device.startswith("cuda"):
        raise OptionError(f"--device {device} is not supported: {why} on the CPU; leave it at auto.")


def training_precision(dtype: choices.TrainingDtype | None) -> str | None:
    """Map a training ``--dtype`` to the config's ``precision``; None stays None."""
    return None if dtype is None else choices.TRAINING_PRECISIONS[dtype]


def open_model(model: str | None, revision: str | None = None) -> Checkpoint:
    """Open a checkpoint; for an unknown family, report the inferred architecture on stderr.

    Raises:
        RankscopeError: see `rankscope.checkpoints.open_checkpoint`.
    """
    from rankscope.checkpoints import open_checkpoint

    checkpoint = open_checkpoint(model, revision=revision)
    if checkpoint.guesses:
        say(f"{checkpoint.source}: unknown family; inferred from names and shapes: {'; '.join(checkpoint.guesses)}.")
    return checkpoint


def forecasting(
    num_samples: int,
    batch_size: int,
    seed: int,
    device: str,
    dtype: str | None,
    runtime: str = "auto",
    revision: str | None = None,
) -> Forecasting:
    """Build forecasting settings from command-line options.

    Raises:
        OptionError: the device is not available.
    """
    from rankscope.engine.device import resolve_device, resolve_dtype
    from rankscope_eval import Forecasting

    where = resolve_device(device), resolve_dtype(dtype)
    return Forecasting(num_samples, batch_size, seed, *where, runtime, revision)


def refuse_without_weights(models: Sequence[str], about_weights: Mapping[str, str | None]) -> None:
    """Refuse options about weights where no model has any.

    Raises:
        OptionError: one is given.
    """
    from rankscope_eval.baselines import BASELINES

    if any(model not in BASELINES for model in models):
        return
    for name, value in about_weights.items():
        if value not in (None, "auto"):
            raise OptionError(f"--{name} has no effect: {models[0]} has no weights; leave it out.")
