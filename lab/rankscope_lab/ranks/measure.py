"""Ranks of one model: see `rankscope_lab.measure`, where the studies that train can reach it."""

from rankscope_lab.measure import EPS, ModelRanks, measure, rank_record

__all__ = ["EPS", "ModelRanks", "measure", "rank_record"]
