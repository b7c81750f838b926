"""What a run of the lab ran on, in a few words."""

from __future__ import annotations

import platform

import torch

from rankscope.engine.cores import available_cores


def describe(device: str | torch.device, *notes: str) -> str:
    """Name the GPU, or the processor and how many of its cores a run had, and torch's version.

    Args:
        device: of the run.
        notes: what else the times of a run depend on; empty ones are left out.
    """
    where = torch.device(device)
    if where.type == "cuda":
        parts = [torch.cuda.get_device_name(where)]
    else:
        parts = [platform.machine(), f"{torch.get_num_threads()} of {available_cores()} threads"]
    return ", ".join((*parts, f"torch {torch.__version__}", *filter(None, notes)))
