"""What the audit measures on trained weights, beyond loss and accuracy."""

from rankscope_lab.encoders.diagnostics.diagnose import LINEAR, SINGLE_STREAM, diagnose
from rankscope_lab.encoders.diagnostics.geometry import (
    Gram,
    PositionGeometry,
    chance_cosines,
    gram_cosines,
    position_geometry,
    untrained_positions,
    variance_shares,
)
from rankscope_lab.encoders.diagnostics.probes import probe_data, probe_streams, r_squared, ridge_weights
from rankscope_lab.encoders.diagnostics.responses import (
    Masking,
    Prefix,
    Scores,
    mask_channels,
    position_scores,
    without_prefix,
)

__all__ = [
    "LINEAR",
    "SINGLE_STREAM",
    "Gram",
    "Masking",
    "PositionGeometry",
    "Prefix",
    "Scores",
    "chance_cosines",
    "diagnose",
    "gram_cosines",
    "mask_channels",
    "position_geometry",
    "position_scores",
    "probe_data",
    "probe_streams",
    "r_squared",
    "ridge_weights",
    "untrained_positions",
    "variance_shares",
    "without_prefix",
]
