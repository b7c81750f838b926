"""TOTEM: a VQ-VAE, whose codebook is the vocabulary and whose codes are the tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.errors import CheckpointError, DataError, one_line
from rankscope.families.record import Config, Family, Shapes, has_type, positive
from rankscope.families.series import check_series, standardised, unpadded
from rankscope.families.sites import Site

CODEBOOK = "quantiser.codebook.weight"


def sites(config: Config) -> tuple[Site, ...]:
    """The codebook, the only matrix; the rest are convolutions."""
    return (Site(CODEBOOK, "encoder", None, "embedding"),)


def patch_size(config: Config) -> int:
    """Observations per code: a power of two."""
    size = positive(config, "compression", 4)
    if size < 2 or size & (size - 1):
        raise CheckpointError(f"config.json: compression is {size}; it must be a power of two from 2 on.")
    return size


def expected_shapes(config: Config) -> Shapes:
    """The codebook, and every convolution of encoder and decoder."""
    from rankscope.families.models.totem import SETTINGS, Totem

    known = {key: positive(config, key, value) for key, value in SETTINGS.items() if isinstance(value, int)}
    patch_size(config)
    try:
        with torch.device("meta"):
            module = Totem(known)
    except (RuntimeError, OverflowError) as error:  # a product of sizes beyond 64 bits
        raise CheckpointError(f"config.json: no tensors have such sizes ({one_line(error)[:120]}).") from error
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


def build(folder: Path, dtype: torch.dtype) -> nn.Module:
    """Load `rankscope.families.models.totem.Totem`."""
    import json

    from rankscope.families.loading import load_into
    from rankscope.families.models.totem import Totem

    return load_into(Totem(json.loads((folder / "config.json").read_text())), folder, dtype)


def model_inputs(module: Any, series: Tensor) -> dict[str, Tensor]:
    """Standardised series (axes series, time), cut to a multiple of the compression; gaps count as the mean, 0.

    Raises:
        DataError: the series are shorter than one code.
    """
    check_series(series)
    size = module.compression
    if series.shape[1] < size:
        raise DataError(f"series are too short for TOTEM: one code takes {size} values.")
    values = standardised(series)[:, series.shape[1] % size :].nan_to_num(nan=0.0)
    return {"values": values.to(module.quantiser.codebook.weight)}


def embed(module: Any, series: Tensor) -> Float[Tensor, "tokens d_model"]:
    """Return the codes of a corpus (axes series, time), one for every `patch_size` values; gaps are bridged.

    Raises:
        DataError: no series is as long as one code.
    """
    from rankscope.families.models.totem import embedded

    rows = embedded(module, unpadded(standardised(series), series.shape[-1]))
    if len(rows) == 0:
        raise DataError(f"series are too short for TOTEM: one code takes {module.compression} values.")
    return rows


def vocabulary(module: Any) -> Float[Tensor, "vocabulary d_model"]:
    """The codebook: the transpose of the paper's Ξ."""
    return module.quantiser.codebook.weight.detach()


def blocks(module: Any) -> dict[str, list[nn.Module]]:
    """A VQ-VAE has no layers of a transformer.

    Raises:
        CheckpointError: always.
    """
    raise CheckpointError(
        "TOTEM is a VQ-VAE without transformer layers: use `rankscope embed` or `rankscope spectrum`."
    )


FAMILY = Family(
    name="totem",
    title="TOTEM",
    strategy="quantisation",
    matches=has_type("totem"),
    sites=sites,
    patch_size=patch_size,
    expected_shapes=expected_shapes,
    build=build,
    embed=embed,
    model_inputs=model_inputs,
    blocks=blocks,
    vocabulary=vocabulary,
    published_patch=1,
    stand_in="bundled-totem",
    layered=False,
    proxy=True,
)
