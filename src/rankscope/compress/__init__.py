"""Smaller checkpoints: calibrate and measure (prepare), say which rank where (plan), factorise and write (apply).

Names are loaded when they are asked for: `rankscope.compress.options`, which the command line reads, needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankscope.compress.dispatch import compress
    from rankscope.compress.methods import truncated_svd
    from rankscope.compress.options import Budget, CompressOptions
    from rankscope.compress.plan import Plan, SitePlan, Spectrum, plan_by_budget, plan_by_eps
    from rankscope.compress.recipe import Recipe, read_recipe
    from rankscope.compress.report import CompressReport, LossSearch, LossStep, SiteReport
    from rankscope.compress.to_loss import compress_to_loss
    from rankscope.compress.to_time import compress_to_time

_HOMES = {
    "dispatch": ("compress",),
    "methods": ("truncated_svd",),
    "options": ("Budget", "CompressOptions"),
    "plan": ("Plan", "SitePlan", "Spectrum", "plan_by_budget", "plan_by_eps"),
    "recipe": ("Recipe", "read_recipe"),
    "report": ("CompressReport", "LossSearch", "LossStep", "SiteReport"),
    "to_loss": ("compress_to_loss",),
    "to_time": ("compress_to_time",),
}

__all__ = [
    "Budget",
    "CompressOptions",
    "CompressReport",
    "LossSearch",
    "LossStep",
    "Plan",
    "Recipe",
    "SitePlan",
    "SiteReport",
    "Spectrum",
    "compress",
    "compress_to_loss",
    "compress_to_time",
    "plan_by_budget",
    "plan_by_eps",
    "read_recipe",
    "truncated_svd",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
