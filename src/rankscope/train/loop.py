"""Trainer with sequential data, and its arguments. Imports transformers."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import SequentialSampler
from transformers import Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from rankscope.engine.device import resolve_device
from rankscope.errors import OptionError
from rankscope.train import processes
from rankscope.train.config import PretrainConfig
from rankscope.train.logs import LossMeter
from rankscope.train.models import embedding_parameters
from rankscope.train.passes import fast_loss, fast_stacks, has_fast_pass

SCHEDULES = {
    "linear": "linear",
    "cosine": "cosine",
    "constant": "constant_with_warmup",  # transformers' "constant" leaves out the warm-up
    "warmup_stable_decay": "warmup_stable_decay",
}
COMPILER = "inductor"
PRODUCTS = 12
"""Timed matmuls per dtype; the fastest counts."""
PAYS = 1.5
"""Minimum speed-up to choose bfloat16: about 4 with hardware support, below 1 without."""
Loss = Callable[[Any, Mapping[str, Tensor]], Tensor]
"""Loss of a model on a batch."""
RATE = "rate"
"""Key of a parameter group for its learning-rate multiplier (default 1)."""
PATIENCE = 4 * 3600
"""Distributed timeout in seconds, long enough for validation in the main process."""


def training_arguments(config: PretrainConfig, run: Path, device: str, workers: int) -> TrainingArguments:
    """Build the Trainer's arguments; under a launcher this also initialises the process group.

    Args:
        config: the run.
        run: folder of its snapshots.
        device: ``auto``, ``cpu`` or ``cuda``.
        workers: data-loading processes per training process.

    Raises:
        OptionError: invalid device, one that is not there, or a negative number of workers.
    """
    if device not in ("auto", "cpu", "cuda", "cuda:0"):
        raise OptionError(f"device {device!r} cannot be chosen for training: set CUDA_VISIBLE_DEVICES, use cuda.")
    resolve_device(device)
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
    if arguments.n_gpu > 1:  # one GPU per process; use a launcher for several
        arguments._n_gpu = 1
    return arguments


def resolve_precision(config: PretrainConfig, device: str, begun: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Resolve ``precision: auto`` to ``fp32`` or ``bf16`` for this device.

    Args:
        config: the run.
        device: ``auto``, ``cpu`` or ``cuda``.
        begun: settings of the run to resume, whose precision is kept, since timings vary.
    """
    if config.precision != "auto":
        return config.precision
    if begun.get("precision") == "auto" and begun.get("arithmetic") in ("fp32", "bf16"):
        return str(begun["arithmetic"])
    if device != "cpu" and torch.cuda.is_available():
        native = torch.cuda.get_device_capability() >= (8, 0)
    else:
        native = multiplies_bfloat16()
    return "bf16" if native else "fp32"


@functools.cache
def multiplies_bfloat16() -> bool:
    """Return whether bfloat16 is faster on this processor, by timing matmuls, since CPU flags are unreliable."""
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


class Loop(Trainer):
    """Trainer with sequential sampling, a loss meter, and its own peak learning rate instead of a snapshot's.

    The learning rate of the embedding is scaled by ``embedding_rate``.
    """

    def __init__(
        self, *args: Any, meter: LossMeter, embedding_rate: float = 1.0, loss: Loss | None = None, **settings: Any
    ) -> None:
        super().__init__(*args, **settings)
        self.loss = loss
        self.embedding_rate = embedding_rate
        self.meter = meter
        # T5's forward accepts any keyword and ignores `num_items_in_batch`. The Trainer takes the keywords for a sign
        # that the loss is divided by it, and would then forget to divide by micro-batches and processes.
        self.model_accepts_loss_kwargs = False
        self.fast = has_fast_pass(self.model) and not processes.joined() and not self.args.torch_compile
        self.remove_callback(PrinterCallback)
        self.remove_callback(ProgressCallback)

    def _get_train_sampler(self, *args: Any, **kwargs: Any) -> SequentialSampler:
        data: Any = self.train_dataset
        return SequentialSampler(data)

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """Create AdamW, with a separate parameter group for the embedding if its rate differs."""
        optimizer = super().create_optimizer(model)
        if self.embedding_rate != 1 and not any(RATE in group for group in optimizer.param_groups):
            split_embedding(optimizer, embedding_parameters(self.model).values(), self.embedding_rate)
        return optimizer

    def _load_optimizer_and_scheduler(self, checkpoint: Any) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        set_peak(self.optimizer, self.lr_scheduler, self.args.learning_rate)

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute the loss of a micro-batch, the model's own or another, with the fast CPU pass if available."""
        if not self.fast:
            return self.loss(model, inputs) if self.loss else super().compute_loss(model, inputs, *args, **kwargs)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.args.bf16):
            if self.loss is None:
                return fast_loss(model, inputs)
            with fast_stacks(model):
                return self.loss(model, inputs)

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """Run one micro-batch forward and backward."""
        loss = super().training_step(*args, **kwargs)
        self.meter.add(loss)
        return loss


def split_embedding(optimizer: torch.optim.Optimizer, embedding: Iterable[Tensor], rate: float) -> None:
    """Move the embedding's parameters to separate groups with ``rate`` times the learning rate."""
    moved = {id(one) for one in embedding}
    for group in list(optimizer.param_groups):
        mine = [one for one in group["params"] if id(one) in moved]
        if mine:
            group["params"] = [one for one in group["params"] if id(one) not in moved]
            optimizer.add_param_group({**group, "params": mine, "lr": group["lr"] * rate, RATE: rate})


def set_peak(optimizer: Any, schedule: Any, peak: float) -> None:
    """Change the peak learning rate of a restored optimiser and schedule, keeping the step.

    Both store their initial peak rate; the schedule's factor per step is unchanged.
    """
    shares = [share(schedule.last_epoch) for share in schedule.lr_lambdas]
    for group, share in zip(optimizer.param_groups, shares, strict=True):
        group["initial_lr"] = peak * group.get(RATE, 1.0)
        group["lr"] = group["initial_lr"] * share
    schedule.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
    schedule._last_lr = [group["lr"] for group in optimizer.param_groups]  # for the next log line
