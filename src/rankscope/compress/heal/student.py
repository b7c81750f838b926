"""The student: which teacher it may have, which of its parameters are trained, and how it is stored again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rankscope.checkpoints import Checkpoint
from rankscope.checkpoints.sources import COMPANIONS
from rankscope.compress.recipe import RECIPE
from rankscope.compress.write import REPORT
from rankscope.errors import FamilyError, OptionError
from rankscope.families import FAMILIES, config_field
from rankscope.families.sites import LETTERS
from rankscope.families.stream import read_widths, stream_axes
from rankscope.families.weight_layout import scale_name
from rankscope.numerics.quantise import quantise

KEPT = ("config.json", REPORT, RECIPE, *COMPANIONS)
"""Files that a healed folder takes over as they are."""
SHARD = "5GB"


def build_student(checkpoint: Checkpoint, train: str) -> nn.Module:
    """Load a student in float32, without dropout, its other parameters frozen; what is in int8 becomes trainable.

    Dropout would keep a student from ever agreeing with its teacher, which is run without.

    Raises:
        OptionError: ``train`` is ``compressed``, and nothing is.
    """
    module = checkpoint.module(torch.float32)
    if checkpoint.storage == "int8":
        from rankscope.lowrank.models import restore_layers

        restore_layers(module)
    without_dropout(module)
    if train == "compressed":
        chosen = compressed_parameters(checkpoint, module)
        if not chosen:
            raise OptionError(f"{checkpoint.source} holds no compressed matrix: heal it with train all.")
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(name in chosen)
    return module


def build_teacher(checkpoint: Checkpoint) -> nn.Module:
    """Load a teacher in float32 and evaluation mode; it is never trained.

    Its weights are not frozen: `torch.matmul` multiplies a batch by another kernel where the weight needs no gradient,
    which on some processors rounds differently (`rankscope.compress.heal.distillation.same_kernels`).
    """
    module = checkpoint.module(torch.float32)
    without_dropout(module)
    return module.eval()


def compressed_parameters(checkpoint: Checkpoint, module: nn.Module) -> set[str]:
    """Names of the parameters of factored matrices, of heads and blocks that were narrowed, and on narrower streams."""
    prefixes = [f"{name}.{letter}." for name in checkpoint.layouts for letter in LETTERS]
    prefixes += [f"{name}." for name in checkpoint.factored]
    prefixes += [f"{site.module}." for site in checkpoint.sites(["all"]) if checkpoint.layout(site) == "width"]
    names = [name for name, _ in module.named_parameters()]
    on_stream = stream_axes({name: info.shape for name, info in checkpoint.index.items()})
    cut = on_stream if read_widths(checkpoint.config) else {}
    return {name for name in names if name in cut or name.startswith(tuple(prefixes))}


def without_dropout(module: nn.Module) -> None:
    """Disable every dropout, including the rate that T5's attention holds as a number."""
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        elif isinstance(getattr(part, "dropout", None), float):
            part.dropout = 0.0  # type: ignore[assignment]


def write_student(checkpoint: Checkpoint, module: Any, folder: Path) -> None:
    """Write the weights under the names and in the number formats that they had, and the files beside them.

    What was not trained is copied as it was stored; what was in int8 is rounded again, once.
    """
    from huggingface_hub import save_torch_state_dict

    for name in KEPT:
        if (checkpoint.folder / name).is_file():
            shutil.copyfile(checkpoint.folder / name, folder / name)
    save_torch_state_dict(_tensors(checkpoint, module), folder, max_shard_size=SHARD)
    for file in folder.glob("*.safetensors"):  # safetensors writes them for the owner alone
        file.chmod((folder / "config.json").stat().st_mode)


def _tensors(checkpoint: Checkpoint, module: nn.Module) -> dict[str, Tensor]:
    trained = {name: p for name, p in module.named_parameters(remove_duplicate=False) if p.requires_grad}
    stored = {}
    for name, info in checkpoint.index.items():
        if checkpoint.is_scale(name):
            continue
        tensor = trained[name].detach().cpu() if name in trained else checkpoint.tensor(name)
        if info.dtype == torch.int8:
            rounded = quantise(tensor, name)
            stored[name], stored[scale_name(name)] = rounded.values, rounded.scale
        else:
            stored[name] = tensor.to(info.dtype).clone().contiguous()
    return stored


def check_teacher(student: Checkpoint, teacher: Checkpoint) -> None:
    """Refuse a teacher whose outputs do not mean what the student's mean.

    Raises:
        FamilyError: models of the student's family cannot be healed.
        OptionError: the families, the tokens, the patches, the quantiles or the horizons differ.
    """
    family = student.family
    if not family.healable:
        *others, last = (name for name, one in FAMILIES.items() if one.healable)
        known = f"{', '.join(others)} and {last}"
        raise FamilyError(f"{student.source} is a {family.title} model: only {known} models can be healed.")
    if teacher.family.name != family.name:
        raise OptionError(
            f"teacher {teacher.source} is {teacher.family.title}, {student.source} is {student.family.title}: "
            "name the model that was compressed."
        )
    for key in family.answer_fields:
        own, other = (config_field(one.config, key) for one in (student, teacher))
        if own != other:
            raise OptionError(
                f"teacher {teacher.source} has {key} {other!r}, {student.source} has {own!r}: name the model that was "
                "compressed."
            )
