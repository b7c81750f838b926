"""The model card of a stand-in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankscope.train.proxies.record import Recipe, StandIn

if TYPE_CHECKING:
    from rankscope.train.proxies.train import StandInReport


def model_card(standin: StandIn, recipe: Recipe, result: StandInReport, folder_name: str) -> str:
    """Write the card: what it is, what it learnt from, how long, and how far the loss came down."""
    rows = [
        ("layout", f"{standin.layout} (safetensors, {result.dtype}; trained in float32)"),
        ("modelled on", standin.published),
        ("parameters", f"{result.parameters:,}"),
        *recipe.notes,
        ("data", result.data),
        ("steps", f"{result.steps:,} of {result.batch_size} examples, seed {result.seed}"),
        ("optimiser", f"AdamW (0.9, 0.98), peak learning rate {result.learning_rate:g}, cosine to a tenth"),
        ("machine", f"{result.machine}, {result.seconds:.0f} s"),
        (
            "training loss",
            f"{result.loss_start:.4g} at the start, {result.loss_end:.4g} at the end ({result.loss}; `loss.csv`)",
        ),
        ("held-out loss", f"{result.held_out_before:.4g} before training, {result.held_out_after:.4g} after"),
    ]
    table = "\n".join(f"| {name} | {text} |" for name, text in rows)
    return f"""---
license: apache-2.0
tags: [rankscope]
---

# {folder_name}: a small {standin.layout}

Trained from scratch by this project with `rankscope standin {standin.family}`, so that spectra and ranks of this family
can be measured on trained weights where no hub can be reached. It is no model to forecast with.

| | |
|---|---|
{table}
"""
