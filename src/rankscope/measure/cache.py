"""The key/value cache of a forecast: how many bytes a model keeps per series and sample path."""

from __future__ import annotations

from rankscope.checkpoints import Checkpoint
from rankscope.errors import FamilyError
from rankscope.families import Site, compressible, config_field
from rankscope.families.record import chronos_config, positive

CONTEXT = HORIZON = 512
"""Tokens of a text model, whose config names none."""


def cached_tokens(checkpoint: Checkpoint, site: Site) -> int:
    """Tokens that the attention of a site caches in a forecast of full context and horizon; none in an encoder.

    Raises:
        FamilyError: the decoder of a family that is not compressed.
    """
    if site.stack == "encoder":
        return 0
    family, config = checkpoint.family, checkpoint.config
    if family.low_rank is None:
        raise FamilyError(
            f"{checkpoint.source} is a {family.title} model, whose cache is not known: name one of {compressible()}."
        )
    context, horizon = family.context(config) or CONTEXT, family.horizon(config) or HORIZON
    if family.decoding == "once":
        horizon = 1
        context //= positive(chronos_config(config), "input_patch_stride", family.patch_size(config))
    last = any(config_field(config, f"chronos_config.use_{name}_token") for name in ("reg", "eos"))
    return horizon if site.role.startswith("self") else context + last


def cache_bytes(checkpoint: Checkpoint) -> int:
    """Bytes of the keys and values of one series and one sample path, context and horizon full.

    A cached token is one row of every W_K and W_V, so narrower heads shrink it and factored matrices do not. Numbers
    have the format of the largest tensor in floating point.

    Raises:
        FamilyError: as `cached_tokens` says.
    """
    sites = [site for site in checkpoint.sites("all") if site.kind == "attention" and site.role[-1] in "kv"]
    numbers = sum(cached_tokens(checkpoint, site) * checkpoint.shape(site)[0] for site in sites)
    return numbers * checkpoint.dtype.itemsize
