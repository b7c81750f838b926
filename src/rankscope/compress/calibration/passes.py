"""Forward passes on the inputs of a forecast, and the streams of layer inputs in them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rankscope.checkpoints import Checkpoint
from rankscope.compress.calibration.moments import MomentSink
from rankscope.engine.randomness import seeded
from rankscope.errors import DataError, FamilyError
from rankscope.families import Family, Site
from rankscope.families.layers import decoder_reads
from rankscope.series import Columns

MEMORY = "memory"
"""Stream of the encoder's output, which keys and values of every cross-attention read."""
PATCHES = "input_patch_embedding"
"""Module that embeds patches, before the stacks receive the padding mask."""
HEAD = "output_patch_embedding"
"""Output head: all the states that it reads are forecast positions."""
GROUP = ".layer.1.self_attention."
"""Part of the names of Chronos-2's group attentions, which attend over the series of a batch, position by position."""


@dataclass(frozen=True)
class CalibrationSet:
    """Histories and their futures; series whose history holds no observation are left out.

    Attributes:
        name: how it was asked for.
        context: (series, time) in float32, NaN where there is no observation.
        future: (series, horizon) in float32.
        columns: column names that its files were read with; None for the usual ones.
        freq: frequency that its files were read with; None where it was inferred.
        seed: of its random choices.

    Raises:
        DataError: no series is left.
    """

    name: str
    context: Float[Tensor, "series context"]
    future: Float[Tensor, "series horizon"]
    columns: Columns | None = None
    freq: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        seen = ~self.context.isnan().all(dim=1)
        if not bool(seen.any()):
            raise DataError(f"calibration set {self.name!r} holds no series with an observation: name at least one.")
        if not bool(seen.all()):
            object.__setattr__(self, "context", self.context[seen])
            object.__setattr__(self, "future", self.future[seen])

    def __len__(self) -> int:
        return len(self.context)


@torch.no_grad()
def pass_inputs(
    module: Any,
    family: Family,
    context: Float[Tensor, "series context"],
    future: Float[Tensor, "series horizon"],
    decoder: str = "teacher",
    seed: int = 0,
) -> dict[str, Any]:
    """Keyword arguments of ``module.forward`` for one pass over a batch.

    Chronos-Bolt and Chronos-2 read the history alone, Chronos-2 with a place for every patch of the horizon and half of
    the series in groups of four; there both kinds of decoder are one. A text model reads the tokens of the history and,
    in the decoder, those that follow.

    Args:
        module: the model in evaluation mode.
        family: its family, one that compress knows.
        context: histories.
        future: what followed; tokens with a text model.
        decoder: one of `rankscope.choices.DECODERS`.
        seed: of the sample paths.
    """
    assert family.forecast_inputs is not None, "check_family refuses the others"
    inputs = family.forecast_inputs(module, context, future.shape[1])
    if family.target_tokens is None:
        return inputs
    if decoder == "sampled":
        if not family.forecastable:
            raise FamilyError(f"a {family.title} model draws no sample paths: calibrate its decoder on given text.")
        with seeded(seed):
            inputs["decoder_input_ids"] = _sampled(module, inputs, future.shape[1])
        return inputs
    start, pad = (int(getattr(module.config, f"{name}_token_id") or 0) for name in ("decoder_start", "pad"))
    tokens = family.target_tokens(module, context, future)
    # values that are missing are padding: no forecast ever reads one
    return {**inputs, **decoder_reads(tokens, (tokens != pad).long(), start)}


def questions(
    source: Checkpoint, module: Any, series: CalibrationSet, batch_size: int
) -> Iterator[tuple[dict[str, Any], int]]:
    """Keyword arguments of ``module.forward``, batch after batch, and how many series each holds."""
    for start in range(0, len(series), batch_size):
        part = slice(start, start + batch_size)
        inputs = pass_inputs(module, source.family, series.context[part], series.future[part])
        yield inputs, len(series.context[part])


def answer(module: Any, inputs: dict[str, Any]) -> Tensor:
    """Quantiles (series, quantiles, horizon) of a model that gives them, logits (series, tokens, vocabulary) else."""
    found = module(**inputs)
    return (found.quantile_preds if gives_quantiles(inputs) else found.logits).float()


def gives_quantiles(inputs: dict[str, Any]) -> bool:
    """True if the outputs are quantiles, not logits, by the model's inputs."""
    return "context" in inputs


def by_length(context: Float[Tensor, "series context"]) -> Int[Tensor, " series"]:
    """Order of series from short to long histories, those with holes last, so that few batches need a mask.

    >>> by_length(torch.tensor([[1.0, torch.nan, 1.0], [1.0, 1.0, 1.0], [torch.nan, 1.0, 1.0]])).tolist()
    [2, 1, 0]
    """
    seen = ~context.isnan()
    length = torch.where(seen.any(dim=1), context.shape[1] - seen.int().argmax(dim=1), 0)
    holes = seen.sum(dim=1) < length
    return (length + holes * context.shape[1]).argsort(stable=True)


def _sampled(module: Any, inputs: dict[str, Tensor], horizon: int) -> Tensor:
    settings = module.config.chronos_config
    drawn = module.generate(
        input_ids=inputs["input_ids"],
        attention_mask=inputs.get("attention_mask"),
        do_sample=True,
        min_new_tokens=horizon,
        max_new_tokens=horizon,
        top_k=settings.get("top_k", 50),
        top_p=settings.get("top_p", 1.0),
        temperature=settings.get("temperature", 1.0),
        eos_token_id=settings["eos_token_id"],
        pad_token_id=settings["pad_token_id"],
    )
    return drawn[:, :-1]


def stream_of(site: Site) -> str:
    """Name of the stream that enters a site: that of the module that is watched for it.

    Queries, keys and values of a self-attention share theirs, gate and input of an MLP too.

    >>> stream_of(Site("decoder.block.1.layer.1.EncDecAttention.v.weight", "decoder", 1, "cross.v", 4, 16, 0))
    'memory'
    >>> stream_of(Site("encoder.block.0.layer.0.SelfAttention.k.weight", "encoder", 0, "self.k", 4, 16, 0))
    'encoder.block.0.layer.0.SelfAttention.q'
    """
    if site.role in ("cross.k", "cross.v"):
        return MEMORY
    parent, _, last = site.module.rpartition(".")
    if site.role.endswith((".k", ".v")):
        return f"{parent}.q"
    return f"{parent}.wi_0" if last == "wi_1" else site.module


def positions_of(stream: str) -> str:
    """Whose positions a stream has: those of the encoder's output are the encoder's.

    >>> positions_of("memory"), positions_of("decoder.block.0.layer.0.SelfAttention.q"), positions_of(PATCHES + ".wi")
    ('encoder', 'decoder', 'input_patch_embedding')
    """
    first = stream.partition(".")[0]
    return first if first in ("decoder", PATCHES, HEAD) else "encoder"


def with_partners(checkpoint: Checkpoint, sites: Sequence[Site]) -> tuple[Site, ...]:
    """The sites, and the other matrices of their attention or MLP: method ``joint`` uses all four of an attention.

    In the order of computation.
    """
    whole = {site.block for site in sites}
    return tuple(site for site in checkpoint.sites(["all"]) if site.block in whole)


def watched_modules(module: nn.Module, sites: Iterable[Site]) -> dict[str, nn.Module]:
    """The module whose input is each stream that the sites need."""
    found: dict[str, nn.Module] = {}
    for site in sites:
        stream = stream_of(site)
        if stream not in found:
            found[stream] = module.get_submodule(site.module if stream == MEMORY else stream)
    return found


@contextlib.contextmanager
def watch_streams(module: Any, watched: Mapping[str, nn.Module], sinks: Mapping[str, MomentSink]) -> Iterator[None]:
    """Sum the moments of every stream while the block runs, without padding (by the stacks' masks).

    Each series counts the same, however long its history is, as it does in the scores.
    """
    real: dict[str, Bool[Tensor, "series tokens"] | None] = {}
    handles = []
    try:
        handles += [*note_masks(module, lambda: real)]
        if isinstance(getattr(module, PATCHES, None), nn.Module):
            hook = _note_patches(real, int(module.chronos_config.input_patch_size))
            handles.append(module.get_submodule(PATCHES).register_forward_pre_hook(hook))
        for stream, layer in watched.items():
            handles.append(layer.register_forward_pre_hook(_feed(sinks[stream], real, stream)))
        yield
    finally:
        for handle in handles:
            handle.remove()


def note_masks(module: nn.Module, real: Callable[[], dict[str, Any]]) -> Iterator[Any]:
    """Hooks that note which positions of both stacks are no padding, None for all; their handles.

    Args:
        module: the model.
        real: gives where a pass notes them, by stack.
    """

    def note(stack: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            mask = kwargs.get("attention_mask")
            real()[stack] = mask > 0 if isinstance(mask, Tensor) and mask.ndim == 2 else None

        return hook

    for stack in ("encoder", "decoder"):
        if isinstance(getattr(module, stack, None), nn.Module):
            yield module.get_submodule(stack).register_forward_pre_hook(note(stack), with_kwargs=True)


def _note_patches(real: dict[str, Any], size: int) -> Callable[..., None]:
    """A patch comes with its mask of observations, the last of its columns; one without any is padding."""

    def hook(_: nn.Module, args: tuple[Any, ...]) -> None:
        x = args[0]
        seen = x[..., -size:].sum(dim=-1) > 0
        if x.shape[-1] == 3 * size:  # Chronos-2's begin with their time, which is below 0 where a mask is to be heeded
            seen = seen | (x[..., 0] >= 0)
        real[PATCHES] = seen

    return hook


def series_weights(real: Bool[Tensor, "series tokens"]) -> Float[Tensor, "series tokens"]:
    """Weights of positions that add up to 1 in every series with any, 0 at padding.

    >>> series_weights(torch.tensor([[True, True], [False, True], [False, False]])).tolist()
    [[0.5, 0.5], [0.0, 1.0], [0.0, 0.0]]
    """
    return real / real.sum(dim=1, keepdim=True).clamp(min=1)


def _feed(sink: MomentSink, real: dict[str, Any], stream: str) -> Callable[..., None]:
    place = positions_of(stream)

    @torch.no_grad()
    def hook(_: nn.Module, args: tuple[Any, ...]) -> None:
        x, mask = args[0], real.get(place)
        by_position = GROUP in stream
        series, tokens = x.shape[1::-1] if by_position else x.shape[:2]
        if mask is None or mask.shape != (series, tokens):
            mask = torch.ones(series, tokens, dtype=torch.bool, device=x.device)
        weights = series_weights(mask)
        if by_position:
            mask, weights = mask.mT, weights.mT
        with torch.autocast(x.device.type, enabled=False):  # the layers may round their products, sums of squares not
            sink.add(x, mask, weights)

    return hook
