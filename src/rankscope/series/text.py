"""Tokenise text with a model's tokenizer, or by bytes."""

from __future__ import annotations

import gzip
import zlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from rankscope.errors import DataError, check_count, one_line

TOKENIZER, SENTENCES, SETTINGS = "tokenizer.json", "spiece.model", "tokenizer_config.json"
"""Files of a tokenizer, the first of which is read: of tokenizers; of SentencePiece, which older T5 models have alone;
the settings, which are all that ByT5 has."""
BYTE_OFFSET = 3
"""First byte id for models without a tokenizer, as in ByT5: 0, 1 and 2 are special tokens."""
LARGEST = 1 << 30
"""Most bytes that a packed text may unpack to."""


def read_text(file: str | Path) -> str:
    """Read a UTF-8 text file, optionally gzipped.

    Raises:
        DataError: unreadable, not UTF-8, empty, or unpacks to more than `LARGEST`.
    """
    path = Path(file)
    try:
        with path.open("rb") as opened:
            packed = opened.read(2) == b"\x1f\x8b"
            opened.seek(0)
            with gzip.open(opened) if packed else opened as stream:
                raw = stream.read(LARGEST + 1 if packed else -1)
        if packed and len(raw) > LARGEST:
            raise DataError(f"text {path} unpacks to more than {LARGEST >> 20} MiB: give a part of it.")
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"text {path} is not UTF-8 (byte {error.start}): convert it.") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"text {path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    if not text.strip():
        raise DataError(f"text {path} is empty: give a file with words in it.")
    return text


def token_ids(text: str, folder: Path, vocabulary: int) -> tuple[Int[Tensor, " tokens"], str]:
    """Tokenise a text with the tokenizer of a checkpoint folder, or by bytes without one.

    Returns:
        Token ids without special tokens, and a description of the tokenizer.

    Raises:
        DataError: an id exceeds the vocabulary, the tokenizer is unreadable, or there is none and the vocabulary is too
            small for bytes.
    """
    found = encoded(text, folder)
    if found is not None:
        ids, name = torch.tensor(found, dtype=torch.long), "its own tokenizer"
    else:
        if vocabulary < BYTE_OFFSET + 256:
            raise DataError(
                f"{folder} has no {TOKENIZER}, and a vocabulary of {vocabulary} is too small for bytes "
                f"({BYTE_OFFSET + 256}): put the model's {TOKENIZER} into the folder."
            )
        ids = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).long() + BYTE_OFFSET
        name = "bytes"
    if len(ids) and int(ids.max()) >= vocabulary:
        raise DataError(
            f"the tokenizer of {folder} makes ids up to {int(ids.max())}, but the model knows {vocabulary}: "
            "use the tokenizer it was trained with."
        )
    return ids, name


def encoded(text: str, folder: Path) -> list[int] | None:
    """Token ids of a text, without special ones, by the tokenizer of a checkpoint folder; None where it has none.

    Raises:
        DataError: the tokenizer cannot be read, or sentencepiece is needed and not installed.
    """
    file = next((folder / name for name in (TOKENIZER, SENTENCES, SETTINGS) if (folder / name).is_file()), None)
    if file is None:
        return None
    if file.name == SENTENCES and find_spec("sentencepiece") is None:
        raise DataError(f"{file} needs sentencepiece: pip install sentencepiece.")
    try:
        if file.name != TOKENIZER:
            from transformers import AutoTokenizer

            pieces = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            return list(pieces(text, add_special_tokens=False, verbose=False)["input_ids"])
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(file))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return list(tokenizer.encode(text, add_special_tokens=False).ids)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # tokenizers raises bare Exceptions, and its panics are no Exceptions
        raise DataError(f"{file} cannot be read as a tokenizer: {one_line(error)}.") from error


def text_windows(ids: Int[Tensor, " tokens"], n: int, length: int, seed: int) -> Int[Tensor, "texts window"]:
    """Sample ``n`` windows of ``length`` consecutive ids at random positions; a shorter text gives one window.

    Raises:
        OptionError: ``n`` or ``length`` below 1, or ``seed`` below 0.
        DataError: there are no ids.
    """
    for name, value, least in (("n", n, 1), ("length", length, 1), ("seed", seed, 0)):
        check_count(name, value, least)
    if len(ids) == 0:
        raise DataError("the text has no token: give a longer one.")
    if len(ids) <= length:
        return ids[None]
    starts = np.random.default_rng(seed).integers(0, len(ids) - length + 1, n)
    return ids[torch.from_numpy(starts)[:, None] + torch.arange(length)]
