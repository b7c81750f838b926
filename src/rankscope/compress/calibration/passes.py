"""Forward passes that see what a forecast sees: the history in the encoder, the horizon in the decoder."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankscope.errors import FamilyError
from rankscope.families import Family

LONE_AND_GROUPED = 8
"""Series of which Chronos-2 is given the first half one by one and the second half as one group."""


@torch.no_grad()
def run_pass(
    module: Any,
    family: Family,
    context: Float[Tensor, "series context"],
    future: Float[Tensor, "series horizon"],
    decoder: str = "teacher",
) -> Any:
    """Run a model once over a batch and return what it returned.

    Chronos-Bolt and Chronos-2 read the history alone, Chronos-2 with a place for every patch of the horizon and half of
    the series in groups of four; there both kinds of decoder are one. A text model reads the tokens of the history and,
    in the decoder, those that follow.

    Args:
        module: the model in evaluation mode.
        family: its family.
        context: histories.
        future: what followed; tokens with a text model.
        decoder: one of `rankscope.choices.DECODERS`.
    """
    return module(**pass_inputs(module, family, context, future, decoder))


@torch.no_grad()
def pass_inputs(
    module: Any,
    family: Family,
    context: Float[Tensor, "series context"],
    future: Float[Tensor, "series horizon"],
    decoder: str = "teacher",
) -> dict[str, Any]:
    """Keyword arguments of ``module.forward`` for `run_pass`.

    What no history of a batch reaches back to is left out for Chronos-T5, which would read it as padding, and so is a
    mask that shuts out nothing: with one, every attention would make a bias of its own for every series.
    """
    if family.name == "chronos-t5":
        seen = (~context.isnan()).any(dim=0)
        context = context[:, int(seen.int().argmax()) :] if bool(seen.any()) else context[:, -1:]
    inputs = _unmasked(family.model_inputs(module, context))
    if family.name == "chronos-2":
        patch, most = module.chronos_config.output_patch_size, module.chronos_config.max_output_patches
        groups = _groups(len(context)).to(module.device)
        return {**inputs, "group_ids": groups, "num_output_patches": min(-(-future.shape[1] // patch), most)}
    if "decoder_input_ids" not in inputs:
        return inputs
    if decoder == "sampled":
        if not family.forecastable:
            raise FamilyError(f"a {family.title} model draws no sample paths: calibrate its decoder on given text.")
        inputs["decoder_input_ids"] = _sampled(module, inputs, future.shape[1])
        return inputs
    start, pad = (int(getattr(module.config, f"{name}_token_id") or 0) for name in ("decoder_start", "pad"))
    tokens = _bins(module, context, future) if family.name == "chronos-t5" else future.long().to(module.device)
    first = torch.full_like(tokens[:, :1], start)
    inputs["decoder_input_ids"] = torch.cat([first, tokens[:, :-1]], dim=1)
    if bool((tokens == pad).any()):  # values that are missing: no forecast ever reads one
        inputs["decoder_attention_mask"] = torch.cat([torch.ones_like(first), (tokens[:, :-1] != pad).long()], dim=1)
    return inputs


def _unmasked(inputs: dict[str, Any]) -> dict[str, Any]:
    mask = inputs.get("attention_mask")
    if mask is None or not bool(mask.all()):
        return inputs
    return {name: value for name, value in inputs.items() if name != "attention_mask"}


def _groups(n: int) -> Int[Tensor, " series"]:
    """Groups of a batch for Chronos-2: of every eight series four alone, then four that attend to each other.

    Where all are alone, attention over a group has nothing to choose between, and its queries and keys would seem to be
    of no use.

    >>> _groups(10).tolist()
    [0, 1, 2, 3, 4, 4, 4, 4, 8, 9]
    """
    place = torch.arange(n)
    return place - (place % LONE_AND_GROUPED - LONE_AND_GROUPED // 2).clamp(min=0)


def by_length(context: Float[Tensor, "series context"]) -> Int[Tensor, " series"]:
    """Order of series from short to long histories, those with holes last, so that few batches need a mask.

    >>> by_length(torch.tensor([[1.0, torch.nan, 1.0], [1.0, 1.0, 1.0], [torch.nan, 1.0, 1.0]])).tolist()
    [2, 1, 0]
    """
    seen = ~context.isnan()
    length = torch.where(seen.any(dim=1), context.shape[1] - seen.int().argmax(dim=1), 0)
    holes = seen.sum(dim=1) < length
    return (length + holes * context.shape[1]).argsort(stable=True)


def _bins(module: Any, context: Tensor, future: Tensor) -> Tensor:
    from rankscope.families.chronos_t5 import tokenizer

    bins = tokenizer(module.config.to_dict())
    _, _, scale = bins.context_input_transform(context.detach().float().cpu())
    tokens, _, _ = bins._input_transform(context=future.detach().float().cpu(), scale=scale)
    return tokens.to(module.device)


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
