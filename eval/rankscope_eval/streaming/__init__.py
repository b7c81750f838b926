"""Forecasts of files that do not fit into memory: chunks in, parts out, on this machine or several."""

from rankscope_eval.streaming.folder import StreamReport
from rankscope_eval.streaming.run import forecast_stream

__all__ = ["StreamReport", "forecast_stream"]
