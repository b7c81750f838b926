"""Ranks of one model: see `rankscope.lab.measure`, where the studies that train can reach it."""

from rankscope.lab.measure import EPS, ModelRanks, measure, rank_record

__all__ = ["EPS", "ModelRanks", "measure", "rank_record"]
