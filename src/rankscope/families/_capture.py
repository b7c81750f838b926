"""What a part of a model answers to an input; the rest of the model does not run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


class _Enough(Exception):
    """Ends a forward pass once the part has answered."""


def output_of(module: nn.Module, part: nn.Module, inputs: Mapping[str, Any]) -> Tensor:
    """Run a module until its ``part`` has answered for the first time, and return a copy of that answer.

    The module prepares the inputs as it always does (scaling, patches, padding), so that what is embedded here is what
    the model embeds.
    """
    found: list[Tensor] = []

    def keep(_: nn.Module, args: tuple[Any, ...], answer: Any) -> None:
        # cloned: some models add positions to it in place
        found.append((answer[0] if isinstance(answer, tuple) else answer).detach().clone())
        raise _Enough

    handle = part.register_forward_hook(keep)
    try:
        with torch.no_grad():
            module(**inputs)
    except _Enough:
        pass
    finally:
        handle.remove()
    return found[0]
