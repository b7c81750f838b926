"""Sweeps: train, resume, measure and score all points of a paper figure."""

from rankscope.train.sweeps.points import PointTask, Scoring, run_point
from rankscope.train.sweeps.run import Engine, SweepPlan, choose_points, plan_sweep, run_sweep
from rankscope.train.sweeps.spec import Point, SweepSpec, find_sweep, read_sweep, shipped_sweeps

__all__ = [
    "Engine",
    "Point",
    "PointTask",
    "Scoring",
    "SweepPlan",
    "SweepSpec",
    "choose_points",
    "find_sweep",
    "plan_sweep",
    "read_sweep",
    "run_point",
    "run_sweep",
    "shipped_sweeps",
]
