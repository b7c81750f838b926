"""Inputs of each checkpoint: series, text or images, as they are and embedded batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from rankscope.checkpoints import Checkpoint
from rankscope.choices import IMAGE_SETS
from rankscope.errors import OptionError, check_count, unknown_choice
from rankscope.series import Columns
from rankscope.series.images import image_batches, images
from rankscope.series.signals import corpus
from rankscope.series.text import read_text, text_windows, token_ids


@dataclass(frozen=True)
class Corpora:
    """One corpus per modality.

    Attributes:
        signal: see `rankscope.series.signals.corpus`.
        n: series, and windows of text.
        length: values per series, and tokens per window of text.
        seed: of every random choice.
        file: of the signal ``user``.
        text: file that text models read; without it their vocabulary is measured alone.
        images: one of `rankscope.choices.IMAGE_SETS`.
        image_count: images.
        columns: non-default column names of ``file``.
        freq: frequency of ``file`` (default: inferred).
    """

    signal: str
    n: int
    length: int
    seed: int = 0
    file: str | Path | None = None
    text: str | Path | None = None
    images: str = "generated"
    image_count: int = 1000
    columns: Columns | None = None
    freq: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.signal, str):
            raise OptionError(f"signal must be the name of one, such as mixed, not a {type(self.signal).__name__}.")
        if self.images not in IMAGE_SETS:
            raise OptionError(unknown_choice("images", self.images, IMAGE_SETS))
        check_count("image_count", self.image_count)

    @cached_property
    def series(self) -> Float[Tensor, "series time"]:
        """Series of the signal, read or generated once."""
        how = (self.signal, self.n, self.length, self.seed, self.file)
        return corpus(*how, columns=self.columns, freq=self.freq)

    @cached_property
    def words(self) -> str:
        """The text, read once."""
        assert self.text is not None
        return read_text(self.text)

    def windows(self, folder: Path, vocabulary: int) -> tuple[Int[Tensor, "texts window"], str]:
        """Windows of the text in ids of a model's tokenizer, and the tokenizer in words."""
        ids, tokenizer = token_ids(self.words, folder, vocabulary)
        return text_windows(ids, self.n, self.length, self.seed), tokenizer


@dataclass(frozen=True)
class Embedded:
    """The embedded tokens of a corpus.

    Attributes:
        source: the corpus in words.
        rows: one row per token.
        colour: a number per token for its projection, or None.
        colour_name: its meaning.
        one: rows of the first series where their order is that of levels, not of time; None elsewhere.
    """

    source: str
    rows: Float[Tensor, "tokens d_model"]
    colour: Tensor | None
    colour_name: str
    one: int | None = None

    def sample(self, most: int) -> Float[Tensor, "items d_model"]:
        """Rows whose angles are shown: the first ones, or of levels some of each, in their order."""
        if self.one is None or self.one <= most:
            return self.rows[:most]
        return self.rows[torch.linspace(0, self.one - 1, most).round().long()]


def check_modalities(checkpoints: Sequence[Checkpoint], corpora: Corpora) -> None:
    """Raise `OptionError` where a corpus is asked for that none of the checkpoints reads."""
    read = {checkpoint.family.modality for checkpoint in checkpoints}
    names = ", ".join(f"{checkpoint.source} ({checkpoint.family.modality})" for checkpoint in checkpoints)
    if corpora.text is not None and "text" not in read:
        raise OptionError(f"text {str(corpora.text)!r} has no effect: none of these models reads text: {names}.")
    if corpora.images != "generated" and "image" not in read:
        raise OptionError(f"images {corpora.images!r} have no effect: none of these models reads images: {names}.")
    if corpora.signal == "user" and "series" not in read and (read != {"text"} or corpora.text is not None):
        raise OptionError(
            f"the file of series {str(corpora.file)!r} has no effect: none of these models reads series: {names}."
        )


def reads_token_ids(checkpoints: Sequence[Checkpoint], corpora: Corpora) -> bool:
    """True if the user's file holds token ids: it does where text models alone are measured on it."""
    alone = all(checkpoint.family.modality == "text" for checkpoint in checkpoints)
    return alone and corpora.signal == "user" and corpora.text is None


def corpus_of(checkpoint: Checkpoint, corpora: Corpora) -> Shaped[Tensor, items * axes]:
    """Read or generate what the model reads: series, windows of token ids, or images.

    Raises:
        OptionError: a generated signal for a text model, or a text or a file for a model that does not read it.
        DataError: the file cannot be used.
    """
    check_modalities([checkpoint], corpora)
    family, name = checkpoint.family, checkpoint.source
    if corpora.text is not None:
        return corpora.windows(checkpoint.folder, int(checkpoint.config["vocab_size"]))[0]
    if family.modality == "image":
        return images(corpora.n, _image_side(checkpoint), corpora.seed)[0]
    if family.modality == "text" and corpora.signal != "user":
        raise OptionError(
            f"signal {corpora.signal!r} is a series, but {name} reads text: give --text FILE, or token ids."
        )
    return corpora.series


Reading = tuple[Iterable[Tensor], int, Callable[[Tensor, int], Embedded]]
"""Batches of a corpus, their items in all, and what names the embedded tokens of so many items."""


def embedded(
    checkpoint: Checkpoint, module: nn.Module, corpora: Corpora, batch_size: int, ids_from_file: bool
) -> Iterator[tuple[int, int] | Embedded]:
    """Embed the corpus of the checkpoint's modality: steps (done, total), then the result; nothing without a corpus."""
    family = checkpoint.family
    if family.modality == "image":
        batches, total, name = _images(checkpoint, corpora, batch_size)
    elif family.modality == "series" or ids_from_file:
        batches, total, name = _series(checkpoint, corpora, batch_size)
    elif corpora.text is not None:
        batches, total, name = _text(checkpoint, module, corpora, batch_size)
    else:
        return
    parts: list[Tensor] = []
    done = 0
    for batch in batches:
        yield done, total
        parts.append(family.embed(module, batch).detach())
        done += len(batch)
    yield name(torch.cat(parts), done)


def _series(checkpoint: Checkpoint, corpora: Corpora, batch_size: int) -> Reading:
    series, family = corpora.series, checkpoint.family
    file = corpora.signal if corpora.file is None else Path(corpora.file).name

    def name(rows: Tensor, done: int) -> Embedded:
        in_time = family.modality == "series" and family.in_time
        colour = patch_means(series, family.patch_size(checkpoint.config), len(rows)) if in_time else None
        what = "series" if family.modality == "series" else "texts"
        one = len(rows) // done if not family.in_time else None
        return Embedded(f"{file}: {done} {what} of {series.shape[1]}", rows, colour, "patch mean", one)

    return series.split(batch_size), len(series), name


def _text(checkpoint: Checkpoint, module: nn.Module, corpora: Corpora, batch_size: int) -> Reading:
    vocabulary, file = checkpoint.family.vocabulary, corpora.text
    assert file is not None
    if vocabulary is None:
        raise OptionError(f"{checkpoint.source} has no vocabulary: text cannot be embedded.")
    windows, tokenizer = corpora.windows(checkpoint.folder, len(vocabulary(module)))

    def name(rows: Tensor, done: int) -> Embedded:
        colour = windows.flatten() if len(rows) == windows.numel() else None
        source = f"{Path(file).name}: {done} texts of {windows.shape[1]} tokens ({tokenizer})"
        return Embedded(source, rows, colour, "token id")

    return windows.split(batch_size), len(windows), name


def _images(checkpoint: Checkpoint, corpora: Corpora, batch_size: int) -> Reading:
    batches = image_batches(corpora.images, corpora.image_count, _image_side(checkpoint), corpora.seed, batch_size)
    source = f"{corpora.images}: {{}} images"
    return batches, corpora.image_count, lambda rows, done: Embedded(source.format(done), rows, None, "patch")


def _image_side(checkpoint: Checkpoint) -> int:
    size = checkpoint.config.get("image_size", 224)
    return size if isinstance(size, int) else max(size)


def patch_means(series: Float[Tensor, "series time"], patch_size: int, tokens: int) -> Float[Tensor, " tokens"] | None:
    """Mean of each standardised patch in corpus order, patches without an observation left out.

    None where the model embedded another number of tokens, as when it cut the series to its context.
    """
    x = series.to(torch.float64)
    mean = x.nanmean(1, keepdim=True)
    spread = (x - mean).square().nanmean(1, keepdim=True).sqrt()
    x = (x - mean) / torch.where(spread > 0, spread, 1.0)
    missing = -x.shape[1] % patch_size
    x = torch.nn.functional.pad(x, (missing, 0), value=float("nan"))
    means = x.reshape(-1, patch_size).nanmean(1)
    means = means[~means.isnan()]
    return means if len(means) == tokens else None
