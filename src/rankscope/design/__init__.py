"""Low rank by design: which layer gets which rank before a model is trained, and what is saved by it."""

from rankscope.design.plan import by_design, design_layouts
from rankscope.design.schedule import RankDesign, schedule

__all__ = ["RankDesign", "by_design", "design_layouts", "schedule"]
