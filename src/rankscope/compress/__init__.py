"""Smaller checkpoints: which rank where (plan), how (factorise), and the folder that results (apply)."""

from rankscope.compress.allocate import Allocation, plan_by_budget, plan_by_ratio
from rankscope.compress.apply import compress
from rankscope.compress.budget import Budget
from rankscope.compress.factorise import truncated_svd
from rankscope.compress.plan import Plan, SitePlan, Spectrum, plan_by_eps
from rankscope.compress.prepared import CompressOptions
from rankscope.compress.report import CompressReport, LossSearch, LossStep, SiteReport
from rankscope.compress.to_loss import compress_to_loss

__all__ = [
    "compress",
    "compress_to_loss",
    "CompressOptions",
    "Allocation",
    "Budget",
    "plan_by_budget",
    "CompressReport",
    "SiteReport",
    "LossSearch",
    "LossStep",
    "Plan",
    "SitePlan",
    "Spectrum",
    "plan_by_eps",
    "plan_by_ratio",
    "truncated_svd",
]
