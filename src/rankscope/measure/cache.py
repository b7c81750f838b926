"""The key/value cache of a forecast: how many bytes a model keeps per series and sample path."""

from __future__ import annotations

from rankscope.checkpoints import Checkpoint
from rankscope.families import Site, config_field

CONTEXT = HORIZON = 512
"""Tokens of a text model, whose config names none."""


def cached_tokens(checkpoint: Checkpoint, site: Site) -> int:
    """Tokens that the attention of a site caches in a forecast of full context and horizon; none in an encoder."""
    if site.stack == "encoder":
        return 0
    family, config = checkpoint.family, checkpoint.config
    context, horizon = family.context(config) or CONTEXT, family.horizon(config) or HORIZON
    if family.decoding == "once":
        horizon = 1
        stride = config_field(config, "chronos_config.input_patch_stride")
        context //= int(stride or family.patch_size(config))
    return horizon if site.role.startswith("self") else context + 1


def cache_bytes(checkpoint: Checkpoint) -> int:
    """Bytes of the keys and values of one series and one sample path, context and horizon full.

    A cached token is one row of every W_K and W_V, so narrower heads shrink it and factored matrices do not. Numbers
    have the format of the largest tensor in floating point.
    """
    sites = [site for site in checkpoint.sites(["attention"]) if site.role[-1] in "kv"]
    numbers = sum(cached_tokens(checkpoint, site) * checkpoint.shape(site)[0] for site in sites)
    return numbers * checkpoint.dtype.itemsize
