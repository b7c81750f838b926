"""Evaluate models on fev tasks: data, windows, metrics and leaderboards are fev's.

fev (arXiv:2509.26468) reads a task, splits its windows and scores forecasts of it; chronos-forecasting's pipelines
forecast one (``predict_fev``), with covariates and several targets at once where a model uses them.
"""

from rankscope_eval.fev_suite.report import FevPair, FevRank, FevReport
from rankscope_eval.fev_suite.run import evaluate_fev
from rankscope_eval.fev_suite.tasks import LISTS, read_tasks

__all__ = ["evaluate_fev", "read_tasks", "LISTS", "FevReport", "FevRank", "FevPair"]
