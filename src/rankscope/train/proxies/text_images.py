"""Proxy models for text and images: T5 (span corruption), BERT (masked tokens), ViT (image classification)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.random import Generator

from rankscope.errors import DataError, OptionError
from rankscope.series.images import CLASSES, images
from rankscope.series.text import read_text
from rankscope.train.proxies.recipe import Batch, ProxyOptions, Recipe

WINDOW = 128
"""Tokens of a window of text."""
HELD_OUT = 0.1
"""Held-out fraction at the end of the text."""
NOISE, SPAN = 0.15, 3.0
"""Share of tokens that are hidden, and mean length of a hidden span (T5's own numbers)."""
SENTINELS = 32
_PAD, _EOS, _UNKNOWN, _MASK, _START = "<pad>", "</s>", "<unk>", "<mask>", "<s>"
_IGNORED = -100
_LEARNT, _HELD = 41, 43
SIDE, PATCH = 32, 4
_STRIDE = 1_000_003
"""Seeds of batches are this far apart, times the run's seed, so that no two runs share images."""


@dataclass(frozen=True)
class Text:
    """Tokenised text.

    Attributes:
        name: of the file.
        tokenizer: a ``PreTrainedTokenizerFast``.
        learnt: ids of the training part.
        held_out: ids of the rest.
    """

    name: str
    tokenizer: Any
    learnt: Int[np.ndarray, " learnt"]
    held_out: Int[np.ndarray, " held_out"]

    def windows(self, rng: Generator, n: int, length: int, held_out: bool) -> Int[np.ndarray, "n length"]:
        """Random windows of one of the two parts."""
        ids = self.held_out if held_out else self.learnt
        starts = rng.integers(0, len(ids) - length + 1, n)
        return ids[starts[:, None] + np.arange(length)]


def prepare_text(options: ProxyOptions, specials: list[str]) -> Text:
    """Train a byte-level BPE tokenizer on the training part of a text, and tokenise both parts.

    Raises:
        OptionError: no text is named.
        DataError: the text cannot be read, or is too short.
    """
    if options.text is None:
        raise OptionError("a text model needs a text to learn: give --text FILE (plain UTF-8, or .gz).")
    whole = read_text(options.text)
    cut = int(len(whole) * (1 - HELD_OUT))
    parts = whole[:cut], whole[cut:]
    tokenizer = _tokenizer(parts[0], options.vocabulary, specials)
    ids = [np.asarray(tokenizer(part, add_special_tokens=False, verbose=False)["input_ids"]) for part in parts]
    if min(len(part) for part in ids) < 2 * WINDOW:
        raise DataError(
            f"text {options.text} is too short: its last tenth has {len(ids[1])} tokens, {2 * WINDOW} needed."
        )
    return Text(Path(options.text).name, tokenizer, *ids)


def _tokenizer(text: str, size: int, specials: list[str]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(unk_token=_UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    named = {"pad_token": _PAD, "eos_token": _EOS, "unk_token": _UNKNOWN}
    if _MASK in specials:
        named |= {"mask_token": _MASK, "bos_token": _START}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named)


def corrupt_spans(
    ids: Int[np.ndarray, " length"], rng: Generator, first_sentinel: int, eos: int
) -> tuple[list[int], list[int]]:
    """Corrupt random spans of a window as in T5, replacing them by sentinels.

    Args:
        ids: the window.
        rng: source of the spans.
        first_sentinel: id of the first sentinel; the others follow upwards.
        eos: id that ends both.

    Returns:
        Encoder inputs and labels; their lengths depend only on the length of ``ids``.
    """
    hidden = max(1, round(len(ids) * NOISE))
    spans = max(1, round(hidden / SPAN))
    widths, gaps = _parts(rng, hidden, spans), _parts(rng, len(ids) - hidden, spans)
    source: list[int] = []
    labels: list[int] = []
    position = 0
    for number, (gap, width) in enumerate(zip(gaps, widths, strict=True)):
        source += [*ids[position : position + gap].tolist(), first_sentinel + number]
        position += gap
        labels += [first_sentinel + number, *ids[position : position + width].tolist()]
        position += width
    return [*source, eos], [*labels, eos]


def _parts(rng: Generator, total: int, count: int) -> list[int]:
    """Split a total into so many parts of at least 1, all ways equally likely."""
    cuts = np.sort(rng.choice(total - 1, count - 1, replace=False)) + 1
    return np.diff([0, *cuts, total]).tolist()


def t5(options: ProxyOptions, batch_size: int) -> Recipe:
    """T5 v1.0 for text: ReLU, tied head, 4 heads."""
    from transformers import T5Config, T5ForConditionalGeneration

    sentinels = [f"<extra_id_{number}>" for number in range(SENTINELS)]
    text = prepare_text(options, [_PAD, _EOS, _UNKNOWN, *sentinels])
    width, layers = options.width or 128, options.layers or 4
    settings: dict[str, Any] = {
        "vocab_size": len(text.tokenizer),
        "d_model": width,
        "d_kv": width // 4,
        "d_ff": 4 * width,
        "num_layers": layers,
        "num_heads": 4,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
    }
    first = text.tokenizer.convert_tokens_to_ids(sentinels[0])

    def batch(step: int, held_out: bool) -> Batch:
        rng = np.random.default_rng([options.seed, _HELD if held_out else _LEARNT, step])
        pairs = [corrupt_spans(ids, rng, first, 1) for ids in text.windows(rng, batch_size, WINDOW, held_out)]
        source, labels = zip(*pairs, strict=True)
        return {"input_ids": torch.tensor(source), "labels": torch.tensor(labels)}

    notes = [
        ("width, heads, layers", f"d_model {width}, 4 × {width // 4}, {layers} + {layers} layers, d_ff {4 * width}")
    ]
    return _recipe(
        T5ForConditionalGeneration(T5Config(**settings)), batch, text, "span corruption, nats per hidden token", notes
    )


def bert(options: ProxyOptions, batch_size: int) -> Recipe:
    """BERT with its head for masked tokens."""
    from transformers import BertConfig, BertForMaskedLM

    text = prepare_text(options, [_PAD, _EOS, _UNKNOWN, _MASK, _START])
    width, layers = options.width or 96, options.layers or 3
    size = len(text.tokenizer)
    config = BertConfig(
        vocab_size=size,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=4 * width,
        max_position_embeddings=WINDOW,
        pad_token_id=0,
    )
    mask = int(text.tokenizer.mask_token_id)

    def batch(step: int, held_out: bool) -> Batch:
        rng = np.random.default_rng([options.seed, _HELD if held_out else _LEARNT, step])
        ids = text.windows(rng, batch_size, WINDOW, held_out)
        read, labels = mask_tokens(ids, rng, mask, size)
        return {"input_ids": torch.from_numpy(read), "labels": torch.from_numpy(labels)}

    notes = [("width, heads, layers", f"{width}, 4 × {width // 4}, {layers} layers, MLP {4 * width}")]
    return _recipe(BertForMaskedLM(config), batch, text, "masked tokens, nats per masked token", notes)


def mask_tokens(
    ids: Int[np.ndarray, "n length"], rng: Generator, mask: int, size: int
) -> tuple[Int[np.ndarray, "n length"], Int[np.ndarray, "n length"]]:
    """Mask 15% of the tokens as in BERT: 80% by the mask token, 10% by a random token, 10% unchanged."""
    chosen = rng.random(ids.shape) < NOISE
    fate = rng.random(ids.shape)
    read = np.where(chosen & (fate < 0.8), mask, ids)
    read = np.where(chosen & (fate >= 0.8) & (fate < 0.9), rng.integers(0, size, ids.shape), read)
    return read, np.where(chosen, ids, _IGNORED)


def _recipe(model: Any, batch: Any, text: Text, loss: str, notes: list[tuple[str, str]]) -> Recipe:
    data = (
        f"{text.name}, {len(text.learnt):,} tokens (the last tenth, {len(text.held_out):,} tokens, is held out), in "
        f"windows of {WINDOW}; byte-level BPE of {len(text.tokenizer):,} tokens learnt from the same text"
    )
    return Recipe(model, batch, data, loss, tuple(notes), write=lambda folder: _write(text.tokenizer, folder))


def _write(tokenizer: Any, folder: Path) -> None:
    tokenizer.save_pretrained(str(folder))


def vit(options: ProxyOptions, batch_size: int) -> Recipe:
    """ViT with a head for the classes of `rankscope.series.images.images`."""
    from transformers import ViTConfig, ViTForImageClassification

    width, layers = options.width or 96, options.layers or 4
    settings: dict[str, Any] = {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "intermediate_size": 2 * width,
        "image_size": SIDE,
        "patch_size": PATCH,
        "num_labels": len(CLASSES),
    }

    def batch(step: int, held_out: bool) -> Batch:
        seed = (options.seed * _STRIDE + step) * 2 + int(held_out)
        pixels, labels = images(batch_size, SIDE, seed)
        return {"pixel_values": (pixels - 0.5) / 0.5, "labels": labels}

    notes = (
        ("width, heads, layers", f"{width}, 4 × {width // 4}, {layers} layers, MLP {2 * width}"),
        ("images", f"{SIDE} × {SIDE} pixels in patches of {PATCH} × {PATCH}"),
    )
    data = f"generated images of {len(CLASSES)} classes ({', '.join(CLASSES)}); no photographs"
    return Recipe(
        ViTForImageClassification(ViTConfig(**settings)), batch, data, "cross entropy of the class, nats", notes
    )
