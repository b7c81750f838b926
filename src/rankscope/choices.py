"""Choices of options, each stated once for the command line and the library; this module imports nothing heavy.

A ``Literal`` is the type of an option, which the command line checks by itself; the tuple beside it is what the library
checks values of files and callers against.
"""

from __future__ import annotations

import re
from typing import Literal, get_args

from rankscope.errors import OptionError, unknown_choice

DEVICES = ("auto", "cpu", "cuda")
"""``cuda`` may have a number behind it: ``cuda:1``."""


def known_device(device: str) -> str:
    """Return the name of a device; whether there is one is asked where it is used.

    >>> known_device("cuda:1")
    'cuda:1'

    Raises:
        OptionError: no name of a device.
    """
    if device not in DEVICES and not re.fullmatch(r"cuda:[0-9]+", device):
        raise OptionError(unknown_choice("device", device, DEVICES))
    return device


Dtype = Literal["float32", "float64", "bfloat16", "float16"]
DTYPES: tuple[Dtype, ...] = get_args(Dtype)

TrainingDtype = Literal["float32", "bfloat16"]
"""Formats that matrix products of a training may be rounded to."""
TRAINING_PRECISIONS = {"float32": "fp32", "bfloat16": "bf16"}
"""Value of a training's ``precision`` by its ``--dtype``."""
PRECISIONS = ("auto", "fp32", "bf16")
"""Their names in configs of runs; ``auto`` is bf16 on GPUs that have it, and on processors that are faster with it."""

Runtime = Literal["auto", "fast", "stock"]
RUNTIMES: tuple[Runtime, ...] = get_args(Runtime)
BenchRuntime = Literal["auto", "fast", "stock", "compile"]
BENCH_RUNTIMES: tuple[BenchRuntime, ...] = get_args(BenchRuntime)

Engine = Literal["local", "ray"]
ENGINES: tuple[Engine, ...] = get_args(Engine)

Method = Literal["svd", "whitened", "joint", "stream", "joint+stream", "depth", "theorem3", "asvd", "random"]
METHOD_NAMES: tuple[Method, ...] = get_args(Method)
WHOLE_MODEL: tuple[Method, ...] = ("stream", "joint+stream", "depth")
"""Methods that take the whole model at once; the others give every matrix a rank."""
Allocation = Literal["uniform-eps", "uniform-ratio", "energy", "sensitivity", "schedule"]
ALLOCATIONS: tuple[Allocation, ...] = get_args(Allocation)
Decoder = Literal["teacher", "sampled"]
"""Decoder inputs during calibration: the true future, or sampled paths."""
DECODERS: tuple[Decoder, ...] = get_args(Decoder)
Storage = Literal["float", "int8"]
STORAGES: tuple[Storage, ...] = get_args(Storage)
Trained = Literal["all", "compressed"]
"""Parameters that healing trains."""
TRAINED: tuple[Trained, ...] = get_args(Trained)

Rounding = Literal["ceil", "pow2"]
"""Rounding of a rank schedule."""
ROUNDINGS: tuple[Rounding, ...] = get_args(Rounding)
CrossDepth = Literal["restart", "continue"]
CROSS_DEPTHS: tuple[CrossDepth, ...] = get_args(CrossDepth)
RankLayout = Literal["head-width", "factored"]
RANK_LAYOUTS: tuple[RankLayout, ...] = get_args(RankLayout)
Sketch = Literal["shared", "per-head"]
"""One factor for all heads (eq. 20), or one for each (eq. 21)."""
SKETCHES: tuple[Sketch, ...] = get_args(Sketch)

SeriesKind = Literal["kernelsynth", "tsmixup", "structured", "mixture"]
"""Generators of training series."""
ShardFormat = Literal["arrow", "parquet"]
SHARD_FORMATS: tuple[ShardFormat, ...] = get_args(ShardFormat)
ImageSet = Literal["generated", "cifar10"]
IMAGE_SETS: tuple[ImageSet, ...] = get_args(ImageSet)

PartLayout = Literal["rows", "lists"]
"""One row per step of a forecast, or one per series."""
PART_LAYOUTS: tuple[PartLayout, ...] = get_args(PartLayout)
PartFormat = Literal["parquet", "csv", "arrow"]
PART_FORMATS: tuple[PartFormat, ...] = get_args(PartFormat)
OnDamage = Literal["stop", "skip"]
ON_DAMAGE: tuple[OnDamage, ...] = get_args(OnDamage)

LARGEST_SEED = 2**32 - 1
"""Largest seed that numpy's global generator takes, which transformers seeds."""
