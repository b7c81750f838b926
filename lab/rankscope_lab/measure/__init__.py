"""Ranks of a trained lab model: weights and activations."""

from rankscope_lab.measure.model import EPS, measure, rank_record, watch_layers
from rankscope_lab.measure.record import ModelRanks, Ranks, StreamRanks, WeightRanks
from rankscope_lab.measure.sites import Layer, bias_of, layers_of, matrix_of, sites_of

__all__ = [
    "EPS",
    "Layer",
    "ModelRanks",
    "Ranks",
    "StreamRanks",
    "WeightRanks",
    "bias_of",
    "layers_of",
    "matrix_of",
    "measure",
    "rank_record",
    "sites_of",
    "watch_layers",
]
