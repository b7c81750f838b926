"""Measure the rank structure of time-series foundation models, compress them, prove that the forecasts held."""

__version__ = "0.1.0"
