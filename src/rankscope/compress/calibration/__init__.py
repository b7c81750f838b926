"""Calibration statistics: second moments of layer inputs over a calibration set."""

from rankscope.compress.calibration.collect import (
    CalibrationReport,
    StreamReport,
    calibrate,
    calibration_for,
    report_on,
    unfinished,
)
from rankscope.compress.calibration.moments import InputMoments, moments_of, regularised
from rankscope.compress.calibration.passes import CalibrationSet
from rankscope.compress.calibration.sources import calibration_set, named_set
from rankscope.compress.calibration.statistics import (
    Calibration,
    CalibrationSettings,
    fingerprint,
    is_saved,
    load_calibration,
)

__all__ = [
    "calibrate",
    "calibration_for",
    "calibration_set",
    "fingerprint",
    "is_saved",
    "load_calibration",
    "named_set",
    "report_on",
    "unfinished",
    "Calibration",
    "CalibrationReport",
    "CalibrationSet",
    "CalibrationSettings",
    "InputMoments",
    "StreamReport",
    "moments_of",
    "regularised",
]
