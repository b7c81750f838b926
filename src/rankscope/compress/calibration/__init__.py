"""Second moments of what enters a model's layers, over series that the model is calibrated on."""

from rankscope.compress.calibration._calibration import (
    Calibration,
    CalibrationSettings,
    calibrate,
    calibration_for,
    fingerprint,
    is_saved,
    load_calibration,
    unfinished,
)
from rankscope.compress.calibration.moments import InputMoments, moments_of, regularised
from rankscope.compress.calibration.passes import CalibrationSet
from rankscope.compress.calibration.report import CalibrationReport, StreamReport, report_on
from rankscope.compress.calibration.sources import calibration_set, named_set

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
