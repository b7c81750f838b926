"""Forecast evaluation: tasks, data, baselines, WQL and MASE.

Names are imported lazily.

>>> import rankscope_eval
>>> "embedded" in rankscope_eval.list_suites()
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankscope.lazy import attach

if TYPE_CHECKING:
    from rankscope.series import Series, read_series
    from rankscope_eval.bench import run_bench
    from rankscope_eval.evaluation import evaluate
    from rankscope_eval.forecast import forecast_file, forecast_series
    from rankscope_eval.forecasters import Forecasting, open_forecaster, pipeline_forecaster
    from rankscope_eval.relative import geometric_mean, relative_scores
    from rankscope_eval.report import EvalReport, EvalRow, EvalSummary
    from rankscope_eval.scorer import Scorer, score_during_training
    from rankscope_eval.sources import LoadedSuite, read_suite
    from rankscope_eval.streaming import StreamReport, forecast_stream
    from rankscope_eval.suites import Suite, Task, list_suites, load_suite, series_suite
    from rankscope_eval.tradeoff import Grid, TradeoffOptions, run_table2

__all__ = [
    "evaluate",
    "Forecasting",
    "open_forecaster",
    "pipeline_forecaster",
    "EvalReport",
    "EvalRow",
    "EvalSummary",
    "Suite",
    "Task",
    "list_suites",
    "load_suite",
    "series_suite",
    "LoadedSuite",
    "read_suite",
    "Scorer",
    "Series",
    "read_series",
    "forecast_file",
    "forecast_series",
    "forecast_stream",
    "StreamReport",
    "geometric_mean",
    "relative_scores",
    "score_during_training",
    "run_table2",
    "run_bench",
    "Grid",
    "TradeoffOptions",
]

# Modules must not share a name with an exported function: an imported submodule would shadow it.
_HOMES = {
    "evaluate": ".evaluation",
    "EvalReport": ".report",
    "EvalRow": ".report",
    "EvalSummary": ".report",
    "Suite": ".suites",
    "Task": ".suites",
    "list_suites": ".suites",
    "load_suite": ".suites",
    "series_suite": ".suites",
    "forecast_file": ".forecast",
    "forecast_series": ".forecast",
    "forecast_stream": ".streaming",
    "StreamReport": ".streaming",
    "geometric_mean": ".relative",
    "relative_scores": ".relative",
    "score_during_training": ".scorer",
    "Scorer": ".scorer",
    "LoadedSuite": ".sources",
    "read_suite": ".sources",
    "Forecasting": ".forecasters",
    "open_forecaster": ".forecasters",
    "pipeline_forecaster": ".forecasters",
    "run_table2": ".tradeoff",
    "run_bench": ".bench",
    "Grid": ".tradeoff",
    "TradeoffOptions": ".tradeoff",
    "Series": "rankscope.series",
    "read_series": "rankscope.series",
}

__getattr__, __dir__ = attach(__name__, _HOMES)
