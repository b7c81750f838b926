"""Text models: windows of a text, and how well the model expects it (LPPL)."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from rankscope.calibration import CalibrationSet
from rankscope.checkpoints import Checkpoint
from rankscope.errors import DataError, RankscopeError
from rankscope.progress import Progress, silent
from rankscope_eval.overlap import BATCH_SIZE, logits_of, teacher_passes

CONTEXT, HORIZON = 256, 64
"""Tokens of a window that the encoder reads, and tokens that follow in the decoder."""
_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "spiece.model")
_IDS = re.compile(r"[\s\d,\[\]]*")


def read_tokens(file: str | Path, checkpoint: Checkpoint) -> Int[Tensor, " tokens"]:
    """Token ids of a text, which may be gzipped: whole numbers, or plain text for the checkpoint's own tokenizer.

    Raises:
        DataError: the file cannot be read, the checkpoint has no tokenizer for it, or an id is outside the vocabulary.
    """
    text = _read(Path(file))
    whole_numbers = re.findall(r"\d+", text) if _IDS.fullmatch(text) else None
    ids = _encode(text, file, checkpoint) if whole_numbers is None else [int(word) for word in whole_numbers]
    size = int(checkpoint.config["vocab_size"])
    outside = next((one for one in ids if one >= size), None)
    if outside is not None:
        raise DataError(f"{file}: token id {outside} is outside the model's vocabulary of {size}.")
    return torch.tensor(ids, dtype=torch.long)


def text_windows(
    tokens: Int[Tensor, " tokens"], count: int, *, context: int = CONTEXT, horizon: int = HORIZON
) -> CalibrationSet:
    """At most ``count`` windows from the second half of a text, side by side: those to be scored.

    Raises:
        DataError: the second half is shorter than one window.
    """
    half = tokens[len(tokens) // 2 :]
    size = context + horizon
    _check_length(half, size)
    rows = half[: len(half) // size * size].reshape(-1, size)[:count].float()
    return CalibrationSet(f"text:{len(rows)}", rows[:, :context], rows[:, context:])


def calibration_windows(
    tokens: Int[Tensor, " tokens"], count: int, seed: int, *, context: int = CONTEXT, horizon: int = HORIZON
) -> CalibrationSet:
    """``count`` windows drawn at random from the first half of a text: none of them is scored.

    Raises:
        DataError: the first half is shorter than one window.
    """
    half = tokens[: len(tokens) // 2]
    size = context + horizon
    _check_length(half, size)
    starts = np.random.default_rng([seed, 29]).integers(len(half) - size + 1, size=count)
    rows = torch.stack([half[start : start + size] for start in starts.tolist()]).float()
    return CalibrationSet(f"text:{count}", rows[:, :context], rows[:, context:])


def log_perplexity(
    module: Any, checkpoint: Checkpoint, windows: CalibrationSet, progress: Progress | None = None
) -> float:
    """LPPL (Q9): mean cross-entropy in nats of the tokens that follow, given those in the encoder and before.

    Raises:
        DataError: a logit is not finite.
    """
    report = progress or silent
    total, count = 0.0, 0
    for done, batch in enumerate(teacher_passes(module, checkpoint.family, windows)):
        report(done * BATCH_SIZE, len(windows), "log-perplexity")
        losses = torch.nn.functional.cross_entropy(
            logits_of(module, batch)[batch.real], batch.labels[batch.real], reduction="sum"
        )
        total, count = total + float(losses.double()), count + int(batch.real.sum())
    report(len(windows), len(windows), "log-perplexity")
    return total / count


def _check_length(half: Tensor, size: int) -> None:
    if len(half) < size:
        raise DataError(
            f"the text is too short: half of it has {len(half)} tokens, one window {size}; give a longer one."
        )


def _read(file: Path) -> str:
    try:
        raw = file.read_bytes()
        return (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"text {file} is not UTF-8: {error.reason}.") from error
    except (OSError, EOFError) as error:
        raise DataError(f"text {file} cannot be read: {getattr(error, 'strerror', None) or error}.") from error


def _encode(text: str, file: str | Path, checkpoint: Checkpoint) -> list[int]:
    if not any((checkpoint.folder / name).is_file() for name in _TOKENIZERS):
        raise DataError(
            f"{checkpoint.source} has no tokenizer to read {file} with: give a file of token ids (whole numbers)."
        )
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(checkpoint.folder, local_files_only=True)
        return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
    except RankscopeError:
        raise
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"the tokenizer of {checkpoint.source} cannot be used: {reason}") from error
