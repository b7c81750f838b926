"""Second moments of what enters a model's layers, over series that the model is calibrated on."""

from rankscope.calibration._calibration import Calibration, CalibrationSettings, calibrate, load_calibration
from rankscope.calibration.moments import InputMoments, moments_of, regularised
from rankscope.calibration.sets import CalibrationSet, calibration_set

__all__ = [
    "calibrate",
    "calibration_set",
    "load_calibration",
    "Calibration",
    "CalibrationSet",
    "CalibrationSettings",
    "InputMoments",
    "moments_of",
    "regularised",
]
