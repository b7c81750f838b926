"""Smaller checkpoints: calibrate and measure (prepare), say which rank where (plan), factorise and write (apply).

Names are loaded when they are asked for: `rankscope.compress.options`, which the command line reads, needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankscope.lazy import attach

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
    "Budget": ".options",
    "CompressOptions": ".options",
    "CompressReport": ".report",
    "LossSearch": ".report",
    "LossStep": ".report",
    "Plan": ".plan",
    "Recipe": ".recipe",
    "SitePlan": ".plan",
    "SiteReport": ".report",
    "Spectrum": ".plan",
    "compress": ".dispatch",
    "compress_to_loss": ".to_loss",
    "compress_to_time": ".to_time",
    "plan_by_budget": ".plan",
    "plan_by_eps": ".plan",
    "read_recipe": ".recipe",
    "truncated_svd": ".methods",
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

__getattr__, __dir__ = attach(__name__, _HOMES)
