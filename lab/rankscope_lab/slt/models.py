"""The models of the study by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from torch import nn

from rankscope.errors import OptionError, unknown_choice
from rankscope_lab.slt.forecasters import (
    ADDITIVE,
    ATTENTION,
    HORIZON,
    LOOKBACK,
    MULTIPLICATIVE,
    NO_POSITIONS,
    PROJECTION,
    DLinear,
    ForecasterShape,
    InstanceNorm,
    NBeats,
    PatchForecaster,
    SeasonalNaive,
)

SLT, PATCHTST, NBEATS, DLINEAR, NAIVE = "slt", "patchtst", "nbeats", "dlinear", "naive"
MAIN = (SLT, PATCHTST, NBEATS, DLINEAR, NAIVE)
"""Models of the published table, and the two floors."""

SHAPES: Mapping[str, ForecasterShape] = MappingProxyType(
    {
        SLT: ForecasterShape(),
        PATCHTST: ForecasterShape((ATTENTION,) * 3, ADDITIVE),
        "slt-additive": ForecasterShape(positions=ADDITIVE),
        "patchtst-mult": ForecasterShape((ATTENTION,) * 3, MULTIPLICATIVE),
        "slt-middle": ForecasterShape((PROJECTION, ATTENTION, PROJECTION)),
        "slt-bottom": ForecasterShape((ATTENTION, PROJECTION, PROJECTION)),
        "slt-offset": ForecasterShape(offset=1.0),
        "projections": ForecasterShape((PROJECTION,) * 3),
        "head": ForecasterShape((), NO_POSITIONS),
    }
)
"""`PatchForecaster`s: the two of the table, and those that change one thing of them."""
MODELS = (*SHAPES, NBEATS, DLINEAR, NAIVE)

ABOUT = MappingProxyType(
    {
        SLT: "two projection blocks, attention on top, multiplicative positions",
        PATCHTST: "three attention blocks, additive positions (no published PatchTST)",
        "slt-additive": "SLT with additive positions",
        "patchtst-mult": "three attention blocks, multiplicative positions",
        "slt-middle": "SLT with attention in the middle",
        "slt-bottom": "SLT with attention at the bottom",
        "slt-offset": "SLT whose positions multiply by 1 + weight",
        "projections": "three projection blocks, no attention",
        "head": "patch embedding and head only: linear",
        NBEATS: "three blocks of four layers, width 128",
        DLINEAR: "linear maps of moving average and rest",
        NAIVE: "the last 24 hours repeated",
    }
)


@dataclass(frozen=True)
class Sizes:
    """Steps that a model reads, forecasts, and that make 24 hours."""

    season: int
    lookback: int = LOOKBACK
    horizon: int = HORIZON


def build_model(name: str, sizes: Sizes, *, revin: bool = False) -> nn.Module:
    """A new model with torch's default draws.

    Args:
        name: one of `MODELS`.
        sizes: of its input and output.
        revin: wrap it into `InstanceNorm`.

    Raises:
        OptionError: an unknown name.
    """
    check_model(name)
    if name in SHAPES:
        shape = replace(SHAPES[name], lookback=sizes.lookback, horizon=sizes.horizon)
        model: nn.Module = PatchForecaster(shape)
    elif name == NBEATS:
        model = NBeats(sizes.lookback, sizes.horizon)
    elif name == DLINEAR:
        model = DLinear(sizes.lookback, sizes.horizon)
    else:
        model = SeasonalNaive(sizes.lookback, sizes.horizon, sizes.season)
    return InstanceNorm(model) if revin else model


def check_model(name: str) -> None:
    """Raise `OptionError` unless it is one of `MODELS`."""
    if name not in MODELS:
        raise OptionError(unknown_choice("model", name, MODELS))


def count_parameters(model: nn.Module) -> int:
    """Trained numbers of a model."""
    return sum(weight.numel() for weight in model.parameters())
