"""Windows of a text for text models: token ids, or words for the checkpoint's own tokenizer."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from rankscope.checkpoints import Checkpoint
from rankscope.compress.calibration.passes import CalibrationSet
from rankscope.errors import DataError, OptionError
from rankscope.series.text import encoded, read_text

TEXT = "text:"
"""Prefix of the name of a set of text windows."""
CONTEXT, HORIZON = 256, 64
"""Tokens of a window that the encoder reads, and tokens that follow in the decoder."""
WINDOWS = 256
"""Windows of a set that does not say how many."""
CALIBRATED, PROBED = (0.0, 0.375), (0.375, 0.5)
"""Parts of a text that models are calibrated on, and that their answers are compared on. The second
half is left to be scored."""
_IDS = re.compile(r"[\s\d,\[\]]*")


def text_set(
    source: str, checkpoint: Checkpoint, *, seed: int = 0, count: int | None = None, probe: bool = False
) -> CalibrationSet:
    """Windows drawn at random from the first half of a text; none of the second, which is left to be scored.

    Args:
        source: ``text:FILE``, or ``text:FILE:N`` for N windows in the place of 256; FILE as `read_tokens` takes it.
        checkpoint: a text model.
        seed: of the windows.
        count: windows where ``source`` does not say, 256 by default.
        probe: draw from the last quarter of that half, and not from what comes before it.

    Raises:
        OptionError: the source names no file, or fewer windows than one.
        DataError: the text cannot be used, or is too short.
    """
    file, number = _split(source)
    if not file or (number and int(number) < 1) or (file.isdecimal() and not Path(file).is_file()):
        raise OptionError(f"calibration set {source!r} names no text: write text:FILE, or text:FILE:N for N windows.")
    tokens = read_tokens(file, checkpoint)
    n = int(number) if number else count or WINDOWS
    drawn = calibration_windows(tokens, n, seed, part=PROBED if probe else CALIBRATED)
    return CalibrationSet(source, drawn.context, drawn.future, seed=seed)


def without_count(source: str) -> str:
    """The name of a set of windows, without how many they are.

    >>> without_count("text:book.txt:64"), without_count("text:book.txt")
    ('text:book.txt', 'text:book.txt')
    """
    return TEXT + _split(source)[0]


def read_tokens(file: str | Path, checkpoint: Checkpoint) -> Int[Tensor, " tokens"]:
    """Token ids of a text, which may be gzipped: whole numbers, or plain text for the checkpoint's own tokenizer.

    Raises:
        DataError: the file cannot be read, the checkpoint has no tokenizer for it, or an id is outside the vocabulary.
    """
    text = read_text(Path(file))
    whole_numbers = re.findall(r"\d+", text) if _IDS.fullmatch(text) else None
    ids = encoded(text, checkpoint.folder) if whole_numbers is None else [int(word) for word in whole_numbers]
    if ids is None:
        raise DataError(
            f"{checkpoint.source} has no tokenizer to read {file} with: give a file of token ids (whole numbers)."
        )
    size = int(checkpoint.config["vocab_size"])
    outside = next((one for one in ids if one >= size), None)
    if outside is not None:
        raise DataError(f"{file}: token id {outside} is outside the model's vocabulary of {size}.")
    return torch.tensor(ids, dtype=torch.long)


def calibration_windows(
    tokens: Int[Tensor, " tokens"],
    count: int,
    seed: int,
    *,
    context: int = CONTEXT,
    horizon: int = HORIZON,
    part: tuple[float, float] = (0.0, 0.5),
) -> CalibrationSet:
    """``count`` windows drawn at random from a part of a text, by default the first half, of which none is scored.

    Raises:
        DataError: the part is shorter than one window.
    """
    begin, end = (int(share * len(tokens)) for share in part)
    inside = tokens[begin:end]
    size = context + horizon
    check_length(inside, size, part[1] - part[0])
    starts = np.random.default_rng([seed, 29]).integers(len(inside) - size + 1, size=count)
    rows = torch.stack([inside[start : start + size] for start in starts.tolist()]).float()
    return CalibrationSet(f"text:{count}", rows[:, :context], rows[:, context:])


def check_length(part: Int[Tensor, " tokens"], size: int, share: float = 0.5) -> None:
    """Refuse a part of a text, by default half of it, that holds no window of ``size`` tokens.

    Raises:
        DataError: it does not.
    """
    if len(part) < size:
        word = "half" if share == 0.5 else f"{share:.3g}"
        raise DataError(
            f"the text is too short: {word} of it has {len(part)} tokens, one window {size}; give a longer one."
        )


def _split(source: str) -> tuple[str, str]:
    """File and number of windows; no number is an empty one."""
    file, colon, number = source.removeprefix(TEXT).rpartition(":")
    return (file, number) if colon and number.isdecimal() else (source.removeprefix(TEXT), "")
