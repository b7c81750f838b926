"""Forecast evaluation: tasks, data, baselines, WQL and MASE."""
