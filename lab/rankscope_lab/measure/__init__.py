"""Ranks of one trained model of the lab: its weights, and what runs through its layers."""

from rankscope_lab.measure.find import Layer, Weight, layers_of, weights_of
from rankscope_lab.measure.model import EPS, measure, rank_record
from rankscope_lab.measure.record import ModelRanks, Ranks, StreamRanks, WeightRanks
from rankscope_lab.measure.streams import watch_layers

__all__ = [
    "EPS",
    "Layer",
    "ModelRanks",
    "Ranks",
    "StreamRanks",
    "Weight",
    "WeightRanks",
    "layers_of",
    "measure",
    "rank_record",
    "watch_layers",
    "weights_of",
]
