"""Forecasts of files that do not fit into memory: chunks in, parts out, on this machine or several."""

from rankscope_eval.streaming.chunks import Chunk, Stream, open_stream
from rankscope_eval.streaming.engines import Engine
from rankscope_eval.streaming.report import StreamReport
from rankscope_eval.streaming.run import forecast_stream

__all__ = ["Chunk", "Engine", "Stream", "StreamReport", "forecast_stream", "open_stream"]
