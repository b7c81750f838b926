"""A network in the middle of training, seen as its saved copy would be."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch


@contextlib.contextmanager
def as_saved(model: Any) -> Iterator[Any]:
    """Yield the module in evaluation mode, in its own number format; put everything back afterwards.

    Put back are the training mode of every submodule, the forward pass that mixed precision or compilation replaced,
    ``config.use_cache``, and the random states of Python, NumPy and torch: training goes on as if nothing had been.
    """
    modes = {module: module.training for module in model.modules()}
    replaced = model.__dict__.pop("forward", None)
    cache = getattr(model.config, "use_cache", None)
    states = _random_states()
    try:
        model.eval()
        model.config.use_cache = True
        with torch.no_grad():
            yield model
    finally:
        for module, training in modes.items():
            module.training = training
        if replaced is not None:
            model.__dict__["forward"] = replaced
        model.config.use_cache = cache
        _restore(states)


def _random_states() -> tuple[Any, ...]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return random.getstate(), np.random.get_state(), torch.random.get_rng_state(), cuda  # noqa: NPY002


def _restore(states: tuple[Any, ...]) -> None:
    python, numpy, cpu, cuda = states
    random.setstate(python)
    np.random.set_state(numpy)  # noqa: NPY002
    torch.random.set_rng_state(cpu)
    if cuda:
        torch.cuda.set_rng_state_all(cuda)
