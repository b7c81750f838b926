"""Low rank by design: which layer gets which rank before a model is trained, and what that saves.

Each name is loaded when it is used: a config of a run names a design, and reading one must not load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankscope.train.rank_schedule.plan import by_design, design_layouts
    from rankscope.train.rank_schedule.report import DesignReport, design_report
    from rankscope.train.rank_schedule.schedule import RankDesign, rank_at

_HOMES = {
    "RankDesign": "schedule",
    "rank_at": "schedule",
    "by_design": "plan",
    "design_layouts": "plan",
    "DesignReport": "report",
    "design_report": "report",
}

__all__ = ["DesignReport", "RankDesign", "by_design", "design_layouts", "design_report", "rank_at"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
