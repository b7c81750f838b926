"""Options that several verbs share, declared once, and what their values stand for: numbers, words, models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from rankscope import choices
from rankscope.choices import DEVICES
from rankscope.errors import OptionError, unknown_choice
from rankscope_cli.exits import say

if TYPE_CHECKING:
    from rankscope.checkpoints import Checkpoint
    from rankscope_eval import Forecasting

TRAINING_PRECISIONS = {"float32": "fp32", "bfloat16": "bf16"}
"""``--dtype`` of a training → what configs of runs call it."""
OUTPUT, RUNTIME, SCORES, SPREAD = "Output", "Runtime", "Scores", "Where it runs"
"""Panels of the help that several verbs have."""
_WIDEST = 24
"""Columns that the choices of an option may take beside its name."""


def value(
    flag: str, metavar: str | None, help: str, panel: str | None = None, short: str | None = None, **limits: Any
) -> Any:
    """Declare an option with a value: `typer.Option`, whose ``min``, ``max``, ``callback``, … may follow."""
    flags = (flag,) if short is None else (flag, short)
    return typer.Option(*flags, metavar=metavar, help=help, rich_help_panel=panel, **limits)


def count(flag: str, help: str, panel: str | None = None, short: str | None = None) -> Any:
    """Declare an option that takes a whole number from 1 on."""
    return value(flag, "N", help, panel, short, min=1)


def choice(flag: str, kind: Any, help: str, panel: str | None = None, short: str | None = None) -> Any:
    """Declare an option that takes one of the words of a ``Literal``; many of them are listed in its help."""
    words = get_args(kind)
    metavar = "|".join(words)
    if len(metavar) > _WIDEST:
        metavar, help = "NAME", f"{help} One of {', '.join(words)}."
    return value(flag, metavar, help, panel, short)


def switch(flag: str, help: str, panel: str | None = None) -> Any:
    """Declare an option without a value."""
    return value(flag, None, help, panel)


def out_folder(help: str) -> Any:
    """Declare the ``--out`` of a verb that writes a folder."""
    return value("--out", "DIR", help, OUTPUT, "-o")


def known_device(device: str) -> str:
    """Return the value of ``--device``.

    Raises:
        OptionError: it names none; whether there is such a GPU is looked at where a model runs.
    """
    kind, _, number = device.partition(":")
    if kind not in DEVICES or (number and not (kind == "cuda" and number.isdecimal())):
        raise OptionError(unknown_choice("--device", device, DEVICES))
    return device


Model = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL", help="Hub id, local folder or bundled name; bundled by default.", show_default=False
    ),
]
Models = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODEL", help="Hub ids, local folders or bundled names; bundled by default.", show_default=False
    ),
]
Eps = Annotated[
    list[str] | None,
    value("--eps", "E,…", "Tolerances ε in [0, 1), also repeated; 0.1,0.05,0.01 by default.", short="-e"),
]
Sites = Annotated[
    list[str] | None,
    value(
        "--sites",
        "WORD,…",
        "Matrices: q k v o attention mlp embedding all, narrowed by encoder decoder self cross; attention by default.",
        short="-s",
    ),
]
Signal = Annotated[
    str, value("--signal", "NAME|FILE", "sine, exponential, constant, noise, mixed, or a file of series.")
]
Count = Annotated[int, count("--n", "Series in the corpus.")]
Length = Annotated[int, count("--length", "Values per series.")]
Text = Annotated[str | None, value("--text", "FILE", "What text models read: UTF-8 text, also gzipped.")]
Samples = Annotated[int, count("--num-samples", "Sample paths per series, of models that draw them.")]
Horizon = Annotated[int, value("--horizon", "STEPS", "Steps to forecast.", short="-H", min=1)]
ScoreData = Annotated[str | None, value("--data", "DIR", "Folder of local data files.", SCORES)]
MaxSeries = Annotated[int | None, count("--max-series", "Only the first series of each data set.", SCORES)]
Resume = Annotated[bool, switch("--resume", "Go on from the newest snapshot of a stopped run.")]
Seeds = Annotated[int | None, count("--seeds", "Runs per setting; 3.")]
EngineName = Annotated[choices.Engine, choice("--engine", choices.Engine, "This machine, or a Ray cluster.", SPREAD)]
Address = Annotated[
    str, value("--address", "A", "Ray cluster: auto, host:port or ray://host:port; without it Ray starts here.", SPREAD)
]
Precision = Annotated[
    choices.TrainingDtype, choice("--precision", choices.TrainingDtype, "Of matrix products.", SPREAD)
]
Out = Annotated[str | None, value("--out", "FILE", "Also write the result: .csv, .parquet or .json.", OUTPUT, "-o")]
Figures = Annotated[str | None, value("--figures", "DIR", "Draw figures into this folder, as PNG and SVG.", OUTPUT)]
Json = Annotated[bool, switch("--json", "Print one JSON document on stdout.", OUTPUT)]
Force = Annotated[bool, switch("--force", "Replace what --out names, atomically.", OUTPUT)]
BatchSize = Annotated[int, count("--batch-size", "Series per forward pass.", RUNTIME)]
Seed = Annotated[int, value("--seed", "N", "Seed of every random choice.", RUNTIME, min=0)]
Device = Annotated[str, value("--device", "|".join(DEVICES), "Where the model runs.", RUNTIME, callback=known_device)]
Dtype = Annotated[choices.Dtype | None, choice("--dtype", choices.Dtype, "Number format of the model.", RUNTIME)]
TrainingDtype = Annotated[
    choices.TrainingDtype | None,
    choice("--dtype", choices.TrainingDtype, "Number format of matrix products.", RUNTIME),
]
Runtime = Annotated[
    choices.Runtime,
    choice("--runtime", choices.Runtime, "rankscope's own, chronos-forecasting's, or the first that fits.", RUNTIME),
]
Revision = Annotated[str | None, value("--revision", "REV", "Branch, tag or commit of a hub model.", RUNTIME)]
Debug = Annotated[bool, switch("--debug", "Show the traceback of an error.", RUNTIME)]


def words(values: Sequence[str] | None) -> tuple[str, ...] | None:
    """Split a list option that may be repeated, comma-separated, or both; None where it was not given.

    >>> words(["q,k", "v"])
    ('q', 'k', 'v')
    """
    if values is None:
        return None
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


def numbers(parameter: str, values: Sequence[str] | None, default: Sequence[float]) -> tuple[float, ...]:
    """Numbers of a list option, without repetitions, in the order given.

    Raises:
        OptionError: a part is no number, or there is none.

    >>> numbers("eps", ["0.1,0.05", "0.1"], ())
    (0.1, 0.05)
    """
    parts = words(values)
    if parts is None:
        return tuple(default)
    if not parts:
        raise OptionError(f"--{parameter} is empty: give at least one number.")
    try:
        return tuple(dict.fromkeys(float(part) for part in parts))
    except ValueError:
        raise OptionError(f"--{parameter} {','.join(parts)!r} is no list of numbers: write it like 0.1,0.05.") from None


def whole_numbers(
    parameter: str, values: Sequence[str] | None, default: Sequence[int], least: int = 0
) -> tuple[int, ...]:
    """Whole numbers of a list option, as `numbers` gives them.

    Raises:
        OptionError: a part is no whole number, or below ``least``, or there is none.

    >>> whole_numbers("batch", ["1,8", "8"], ())
    (1, 8)
    """
    parts = words(values)
    if parts is None:
        return tuple(default)
    if not parts or not all(part.isdecimal() and int(part) >= least for part in parts):
        raise OptionError(
            f"--{parameter} {','.join(parts)!r} is not usable: give whole numbers, at least {least}, like 1,8,32."
        )
    return tuple(dict.fromkeys(int(part) for part in parts))


def signal_or_file(signal: str) -> tuple[str, str | None]:
    """Tell the name of a generated signal from the path of a user's file.

    Raises:
        OptionError: it is neither.

    >>> signal_or_file("sine"), signal_or_file("my/series.csv")
    (('sine', None), ('user', 'my/series.csv'))
    """
    from pathlib import Path

    from rankscope.series.signals import SIGNALS

    if signal in SIGNALS:
        return signal, None
    if Path(signal).suffix or Path(signal).exists():
        return "user", signal
    raise OptionError(unknown_choice("--signal", signal, SIGNALS, "A file of series works too."))


def refuse_cuda(device: str, why: str) -> None:
    """Raise `OptionError` where a verb that runs on the CPU only is asked to use a GPU."""
    if device.startswith("cuda"):
        raise OptionError(f"--device {device} is of no use here: {why} on the CPU; leave it at auto.")


def refuse_dtype(dtype: str | None) -> None:
    """Raise `OptionError` for another number format than float32, where the model runs in that only."""
    if dtype not in (None, "float32"):
        raise OptionError(f"--dtype {dtype} is of no use here: the model runs in float32, spectra in float64.")


def training_precision(dtype: choices.TrainingDtype | None) -> str | None:
    """Return the name that configs of runs have for a ``--dtype``; None for None."""
    return None if dtype is None else TRAINING_PRECISIONS[dtype]


def open_model(model: str | None, revision: str | None = None) -> Checkpoint:
    """Open a checkpoint; of a model that no family describes, say on stderr what was taken for what.

    Raises:
        RankscopeError: as `rankscope.checkpoints.open_checkpoint` says.
    """
    from rankscope.checkpoints import open_checkpoint

    checkpoint = open_checkpoint(model, revision=revision)
    if checkpoint.guesses:
        say(f"{checkpoint.source}: family not known, guessed from names and shapes: {'; '.join(checkpoint.guesses)}.")
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
    """Settings of forecasts, from options.

    Raises:
        OptionError: the device cannot be used.
    """
    from rankscope.engine.device import resolve_device, resolve_dtype
    from rankscope_eval import Forecasting

    where = resolve_device(device), resolve_dtype(dtype)
    return Forecasting(num_samples, batch_size, seed, *where, runtime, revision)
