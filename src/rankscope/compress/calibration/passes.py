"""Forward passes that see what a forecast sees: the history in the encoder, the horizon in the decoder."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankscope.errors import FamilyError
from rankscope.families import Family


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

    Of a family that compress knows.
    """
    assert family.forecast_inputs is not None, "check_family refuses the others"
    inputs = family.forecast_inputs(module, context, future.shape[1])
    if family.target_tokens is None:
        return inputs
    if decoder == "sampled":
        if not family.forecastable:
            raise FamilyError(f"a {family.title} model draws no sample paths: calibrate its decoder on given text.")
        inputs["decoder_input_ids"] = _sampled(module, inputs, future.shape[1])
        return inputs
    start, pad = (int(getattr(module.config, f"{name}_token_id") or 0) for name in ("decoder_start", "pad"))
    tokens = family.target_tokens(module, context, future)
    first = torch.full_like(tokens[:, :1], start)
    inputs["decoder_input_ids"] = torch.cat([first, tokens[:, :-1]], dim=1)
    if bool((tokens == pad).any()):  # values that are missing: no forecast ever reads one
        inputs["decoder_attention_mask"] = torch.cat([torch.ones_like(first), (tokens[:, :-1] != pad).long()], dim=1)
    return inputs


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
