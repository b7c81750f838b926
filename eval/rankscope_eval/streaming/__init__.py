"""Streaming forecasts of files larger than memory, on one machine or a cluster."""

from rankscope_eval.streaming.folder import StreamReport
from rankscope_eval.streaming.run import forecast_stream

__all__ = ["StreamReport", "forecast_stream"]
