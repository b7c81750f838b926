"""Models of the study by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
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


def build_model(
    name: str, season: int, lookback: int = LOOKBACK, horizon: int = HORIZON, *, revin: bool = False
) -> nn.Module:
    """Build a model with torch's default initialisation.

    Args:
        name: one of `MODELS`.
        season: steps of 24 hours.
        lookback: steps read.
        horizon: steps forecast.
        revin: wrap it into `InstanceNorm`.

    Raises:
        OptionError: an unknown name.
    """
    check_model(name)
    if name in SHAPES:
        shape = replace(SHAPES[name], lookback=lookback, horizon=horizon)
        model: nn.Module = PatchForecaster(shape)
    elif name == NBEATS:
        model = NBeats(lookback, horizon)
    elif name == DLINEAR:
        model = DLinear(lookback, horizon)
    else:
        model = SeasonalNaive(lookback, horizon, season)
    return InstanceNorm(model) if revin else model


def check_model(name: str) -> None:
    """Raise `OptionError` unless it is one of `MODELS`."""
    if name not in MODELS:
        raise OptionError(unknown_choice("model", name, MODELS))
