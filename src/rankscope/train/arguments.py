"""A run in the words of transformers' Trainer."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rankscope.errors import OptionError
from rankscope.train.config import PretrainConfig

if TYPE_CHECKING:
    from transformers import TrainingArguments

SCHEDULES = {
    "linear": "linear",
    "cosine": "cosine",
    "constant": "constant_with_warmup",  # transformers' "constant" leaves out the warm-up
    "warmup_stable_decay": "warmup_stable_decay",
}
COMPILER = "inductor"
PRODUCTS = 12
"""Products that are timed in each number format; the fastest counts."""
PAYS = 1.5
"""How much faster products in bfloat16 must be to be chosen: about 4 with instructions for it, below 1 without."""
PATIENCE = 4 * 3600
"""Seconds that processes wait for the one that scores, before torch gives them up for lost."""


def training_arguments(config: PretrainConfig, run: Path, device: str, workers: int) -> TrainingArguments:
    """Translate a run; under a launcher this also connects the processes with each other.

    Args:
        config: the run.
        run: folder of its snapshots.
        device: ``auto``, ``cpu`` or ``cuda``.
        workers: processes that make batches, per training process.

    Raises:
        OptionError: a device that cannot be chosen here, or a number of workers below 0.
    """
    from transformers import TrainingArguments

    if device not in ("auto", "cpu", "cuda", "cuda:0"):
        raise OptionError(f"device {device!r} cannot be chosen for training: set CUDA_VISIBLE_DEVICES, use cuda.")
    if workers < 0:
        raise OptionError(f"workers is {workers}: it must be at least 0.")
    decay = {"num_decay_steps": config.decay_steps} if config.schedule == "warmup_stable_decay" else {}
    settings: dict[str, Any] = {
        "output_dir": str(run),
        "max_steps": config.max_steps,
        "per_device_train_batch_size": config.batch_size,
        "gradient_accumulation_steps": config.accumulation,
        "learning_rate": config.learning_rate,
        "weight_decay": config.weight_decay,
        "optim": "adamw_torch_fused",
        "adam_beta2": config.beta2,
        "max_grad_norm": config.max_grad_norm,
        "warmup_steps": config.warmup_steps,
        "lr_scheduler_type": SCHEDULES[config.schedule],
        "lr_scheduler_kwargs": decay,
        "save_steps": config.save_steps,
        "save_total_limit": None,  # `rankscope.train.run_folder.tidy` knows which ones are whole
        "logging_steps": config.log_steps,
        "logging_nan_inf_filter": False,
        "seed": config.seed,
        "data_seed": config.seed,
        "dataloader_num_workers": workers,
        "dataloader_pin_memory": torch.cuda.is_available() and device != "cpu",
        "remove_unused_columns": False,
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": device == "cpu" or not torch.cuda.is_available(),
        "bf16": resolve_precision(config, device) == "bf16",
        "torch_compile": config.compile,
        "torch_compile_backend": COMPILER if config.compile else None,
        "ddp_find_unused_parameters": False,
        "ddp_timeout": PATIENCE,
    }
    arguments = TrainingArguments(**settings)
    if arguments.n_gpu > 1:  # one process drives one GPU: a launcher starts one for each
        arguments._n_gpu = 1
    return arguments


def resolve_precision(config: PretrainConfig, device: str) -> str:
    """Return ``fp32`` or ``bf16``: what ``precision: auto`` means on this device."""
    if config.precision != "auto":
        return config.precision
    if device != "cpu" and torch.cuda.is_available():
        native = torch.cuda.get_device_capability() >= (8, 0)
    else:
        native = multiplies_bfloat16()
    return "bf16" if native else "fp32"


@functools.cache
def multiplies_bfloat16() -> bool:
    """Whether bfloat16 pays on this processor: seen in timed products, as flags may promise too much."""
    best = {}
    for dtype in (torch.float32, torch.bfloat16):
        factors = torch.ones(1024, 256, dtype=dtype), torch.ones(256, 1024, dtype=dtype)
        seconds = []
        for _ in range(PRODUCTS):
            begun = time.perf_counter()
            torch.mm(*factors)
            seconds.append(time.perf_counter() - begun)
        best[dtype] = min(seconds)
    return best[torch.float32] > PAYS * best[torch.bfloat16]
