"""Pretraining config for a model's shape, from Chronos' published recipe or the model's own pretrain.json."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml

from rankscope.checkpoints import Description
from rankscope.errors import FamilyError, RankscopeError
from rankscope.families import FAMILIES
from rankscope.io import codec
from rankscope.io.atomic import atomic_folder, refuse_existing
from rankscope.train.config import EmbeddingStart, PretrainConfig, Teacher, recorded_config
from rankscope.train.data.mixture import Mixture
from rankscope.train.models import new_model
from rankscope.train.rank_layouts import DesignReport, design_report
from rankscope.train.rank_schedule import RankDesign
from rankscope.train.starts import shape_of

if TYPE_CHECKING:
    from transformers import PretrainedConfig

RUN, CONFIG, REPORT, RECORD = "pretrain.yaml", "config.json", "design.json", "pretrain.json"
CHRONOS, OWN = "chronos", RECORD
# About the file, the class or the decoding, not about the network, or without meaning in one of the families.
_OTHER = {
    "_name_or_path", "architectures", "chronos_config", "chronos_pipeline_class", "dtype", "model_type", "n_positions",
    "output_past", "rankscope", "scale_decoder_outputs", "task_specific_params", "tie_word_embeddings",
    "torch_dtype", "transformers_version",
    "use_cache",
}  # fmt: skip


def write_design(
    source: Description,
    design: RankDesign,
    out: Path | str,
    *,
    embedding: EmbeddingStart | None = None,
    seed: int | None = None,
    precision: str | None = None,
    force: bool = False,
) -> DesignReport:
    """Write the folder of a low-rank design atomically: ``pretrain.yaml``, ``config.json`` and ``design.json``.

    Args:
        source: the stock model whose shape is taken; its weights are not read.
        design: schedule and layout.
        out: folder to write.
        embedding: where the embedding comes from; drawn at random by default.
        seed: of the run, in place of the recipe's.
        precision: of the run, in place of the recipe's.
        force: replace ``out`` if it exists.

    Raises:
        OutputError: ``out`` exists, or cannot be written.
        OptionError: a rank does not fit into the network.
        FamilyError: the model is none that can be pretrained, or is not a stock model.
    """
    refuse_existing(out, force)
    stock, recipe = stock_run(source)
    report = design_report(source.config, design, source.source)
    asked: dict[str, Any] = {"seed": seed, "precision": precision}
    asked = {key: value for key, value in asked.items() if value is not None}
    config = dataclasses.replace(stock, low_rank=design, embedding=embedding or EmbeddingStart(), **asked)
    network = network_config(config)
    lost = not_kept(source.config, network_config(stock).to_dict())
    report = dataclasses.replace(report, out=str(out), recipe=recipe, not_kept=lost)
    with atomic_folder(out, force) as folder:
        (folder / RUN).write_text(_header(report) + to_yaml(config), encoding="utf-8")
        (folder / CONFIG).write_text(network.to_json_string(), encoding="utf-8")
        codec.write(folder / REPORT, report, indent=2)
    return report


def stock_run(source: Description) -> tuple[PretrainConfig, str]:
    """Return the run that trains the stock model, and where it comes from.

    A model that was trained here has its run in ``pretrain.json``: with the same steps and data a design is compared
    at equal cost. Any other gets Chronos' own recipe (arXiv 2403.07815, section 4): 200,000 steps of batch 32, AdamW
    without weight decay, learning rate 0.001 falling linearly to 0, one series of ten from KernelSynth, the others
    mixtures of one to three.

    Raises:
        FamilyError: the model is of no family that is trained here.
    """
    if not source.family.trainable:
        known = ", ".join(name for name, one in FAMILIES.items() if one.trainable)
        raise FamilyError(f"{source.source} is {source.family.title}: a run can be designed for {known} only.")
    own = _own_run(source)
    if own is not None:
        return own, OWN
    inner = source.config["chronos_config"]
    return PretrainConfig(
        family=source.family.name,
        model=shape_of(source),
        context=int(inner["context_length"]),
        horizon=int(inner.get("prediction_length") or inner["max_output_patches"] * inner["output_patch_size"]),
        mixture=Mixture(kernel_share=0.1, mixup_share=0.6),
        max_steps=200_000,
        batch_size=32,
        learning_rate=1e-3,
        weight_decay=0.0,
        warmup_steps=0,
        schedule="linear",
        save_steps=10_000,
        log_steps=500,
    ), CHRONOS


def network_config(config: PretrainConfig) -> PretrainedConfig:
    """Return the config that the run's network will be saved with; the network is built without any weights.

    Raises:
        OptionError: a rank does not fit into the network.
    """
    drawn = dataclasses.replace(config, embedding=EmbeddingStart())
    with torch.device("meta"):
        model = new_model(drawn)
    model.config.architectures = [type(model).__name__]
    return model.config


def not_kept(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> tuple[str, ...]:
    """Settings of a model that are others in the run's network, as "name: theirs → ours".

    >>> not_kept({"d_model": 8, "pad_token_id": 1}, {"d_model": 8, "pad_token_id": 0})
    ('pad_token_id: 1 → 0',)
    """
    pairs = [(key, value, ours.get(key)) for key, value in theirs.items() if key not in _OTHER]
    inner, own = theirs.get("chronos_config") or {}, ours.get("chronos_config") or {}
    pairs += [(f"chronos_config.{key}", value, own.get(key)) for key, value in inner.items()]
    return tuple(
        f"{key}: {value!r} → {other!r}"
        for key, value, other in pairs
        if value is not None and other is not None and value != other
    )


def to_yaml(config: PretrainConfig) -> str:
    """Every field of a run, as `rankscope.train.read_config` reads it."""
    return yaml.safe_dump(codec.plain(config), sort_keys=False, allow_unicode=True)


def _own_run(source: Description) -> PretrainConfig | None:
    """Return the run in ``pretrain.json``, if one trains this very network, without what it began with."""
    try:
        run = recorded_config(source.folder / RECORD)
        fits = run.family == source.family.name and not not_kept(source.config, network_config(run).to_dict())
    except RankscopeError:  # an unreadable record, or one of weights that are gone, is not a record
        return None
    drawn = dataclasses.replace(
        run, low_rank=None, embedding=EmbeddingStart(), weights="", trainable=(), teacher=Teacher()
    )
    return drawn if fits else None


def _header(report: DesignReport) -> str:
    design, model = report.design, " ".join(report.model.split())
    return (
        f"# Low rank by design after {model}: r(i) from r0 {design.r0:g}, alpha {design.alpha:g} "
        f"({design.schedule}), {design.layout};\n"
        f"# its attention stores {report.size_ratio:.3f} of the stock model's numbers. "
        "Train it: rankscope pretrain <this file> --out DIR\n"
    )
