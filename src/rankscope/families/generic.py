"""Models that no family describes: measured where their structure can be found in names and shapes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.errors import CheckpointError, FamilyError, RankscopeError
from rankscope.families import informer, patchtst, t5, vit
from rankscope.families.layers import decoder_reads
from rankscope.families.loading import load_module, output_of
from rankscope.families.record import MOST_LAYERS, Config, Family, Modality, Shapes
from rankscope.families.sites import Site
from rankscope.families.structure import Structure, find_structure

NAME = "generic"


def guess_family(config: Config, shapes: Shapes) -> tuple[Family, tuple[str, ...]]:
    """Make a family for one checkpoint from the names and shapes of its tensors.

    Returns:
        The family, and in words what was taken for what.

    Raises:
        FamilyError: no attention was found; what was looked for, and what there is.
        CheckpointError: the config has more layers than any model.
    """
    for key, value in config.items():
        if "layer" in key and isinstance(value, int) and value > MOST_LAYERS:
            raise CheckpointError(f"config.json: {key} is {value}: no model has so many layers.")
    found = find_structure(config, shapes)
    modality = _modality(found.sites, shapes)
    architectures = config.get("architectures")
    title = architectures[0] if isinstance(architectures, list) and architectures else config.get("model_type")
    family = Family(
        name=NAME,
        title=str(title or "unknown"),
        strategy="text" if modality == "text" else "continuous",
        matches=lambda config: False,
        sites=lambda config: found.sites,
        patch_size=lambda config: _patch_size(found.sites, shapes),
        expected_shapes=lambda config: {site.name: shapes[site.name] for site in found.sites},
        build=_build,
        embed=lambda module, series: _embed(module, series, found, modality),
        model_inputs=lambda module, series: _inputs(module, series, modality),
        context=_context if modality == "text" else lambda config: None,
        blocks=lambda module: _blocks(module, found),
        vocabulary=t5.vocabulary if modality == "text" else None,
        modality=modality,
    )
    return family, found.guesses


def _context(config: Config) -> int | None:
    """Tokens that a text model has positions for, where its config names their number."""
    found = config.get("max_position_embeddings", config.get("n_positions"))
    return found if isinstance(found, int) and found > 0 else None


def _modality(sites: tuple[Site, ...], shapes: Shapes) -> Modality:
    embedding = [site for site in sites if site.kind == "embedding"]
    if any(site.role == "embedding" for site in embedding):
        return "text"
    return "image" if any(len(shapes[site.name]) == 4 for site in embedding) else "series"


def _patch_size(sites: tuple[Site, ...], shapes: Shapes) -> int:
    """Numbers that one token is made of, as far as the embedding says."""
    first = next((site for site in sites if site.role == "patch_in"), None)
    return 1 if first is None else first.shape(shapes[first.name])[1]


def _build(folder: Path, dtype: torch.dtype) -> nn.Module:
    """Load the model without its head through transformers' Auto classes; remote code never runs.

    Raises:
        FamilyError: transformers has no class for it.
        CheckpointError: the checkpoint lacks weights of the model, or its config asks for a far larger one.
    """
    from transformers import AutoConfig, AutoModel

    try:
        config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
        with torch.device("meta"):
            numbers = sum(one.numel() for one in AutoModel.from_config(config, trust_remote_code=False).parameters())
        stored = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
        if numbers > 2 * stored:  # a number takes a byte at least, and tied ones are stored once
            raise CheckpointError(
                f"{folder}: config.json describes a model of {numbers:,} numbers, and {stored:,} bytes are stored."
            )
        return load_module(folder, AutoModel, dtype, trust_remote_code=False)
    except RankscopeError:
        raise
    except (ValueError, KeyError, OSError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise FamilyError(f"{folder}: transformers' AutoModel cannot build this model: {reason}") from error


def _inputs(module: Any, series: Tensor, modality: Modality) -> dict[str, Any]:
    takes = inspect.signature(module.forward).parameters
    if modality == "text":
        tokens = t5.token_ids(module, series)[:, : _context(module.config.to_dict())]
        pad = getattr(module.config, "pad_token_id", None)
        mask = torch.ones_like(tokens) if pad is None else (tokens != pad).long()
        inputs: dict[str, Any] = {"input_ids": tokens, "attention_mask": mask}
        if "use_cache" in takes:
            inputs["use_cache"] = False
        if module.config.is_encoder_decoder:
            inputs |= decoder_reads(tokens, mask, int(module.config.decoder_start_token_id or pad or 0))
        return inputs
    if modality == "image" and "pixel_values" in takes:
        return vit.model_inputs(module, series)
    if "past_time_features" in takes:
        return dict(informer.model_inputs(module, series))
    if {"past_values", "past_observed_mask"} <= set(takes) and hasattr(module.config, "num_input_channels"):
        return dict(patchtst.model_inputs(module, series))
    names = ", ".join(name for name in takes if name != "kwargs")
    raise FamilyError(
        f"{type(module).__name__} takes {names}: rankscope does not know how to feed it {modality}; its weights can be "
        "measured (rankscope spectrum)."
    )


def _embed(module: Any, series: Tensor, found: Structure, modality: Modality) -> Float[Tensor, "tokens d_model"]:
    if modality == "text":
        return t5.embed(module, series)
    site = next((site for site in reversed(found.sites) if site.kind == "embedding"), None)
    if site is None:
        raise FamilyError(f"{type(module).__name__}: no embedding was found by structure; see rankscope spectrum.")
    part = _submodule(module, site.module)
    x = output_of(module, part, _inputs(module, series, modality))
    if x.ndim == 4 and x.shape[1] == found.d_model:  # a convolution puts channels first
        x = x.movedim(1, -1)
    return x.reshape(-1, x.shape[-1])


def _blocks(module: Any, found: Structure) -> dict[str, list[nn.Module]]:
    return {stack: _listed(module, path, found, stack) for stack, path in found.containers.items()}


def _listed(module: Any, path: str, found: Structure, stack: str) -> list[nn.Module]:
    count = len({site.layer for site in found.sites if site.stack == stack and site.layer is not None})
    try:
        held = _submodule(module, path)
    except FamilyError:
        # releases of transformers rename modules and keep the names in files
        lists = [part for part in module.modules() if isinstance(part, nn.ModuleList) and len(part) == count]
        if len(lists) != 1:
            raise
        held = lists[0]
    children: Mapping[str, Any] = dict(held.named_children())
    return list(children.values())


def _submodule(module: Any, path: str) -> nn.Module:
    """Find a module by its name in the file: in front of it the name of the model inside its head may be missing."""
    parts = path.split(".")
    for start in range(len(parts)):
        try:
            found: nn.Module = module.get_submodule(".".join(parts[start:]))
        except AttributeError:
            continue
        return found
    raise FamilyError(f"{type(module).__name__} has no module {path}, which the checkpoint names.")
