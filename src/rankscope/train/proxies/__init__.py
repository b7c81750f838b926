"""Small models of every family, trained on the CPU in minutes: ranks are only worth measuring on trained weights."""

from rankscope.train.proxies.record import Recipe, StandIn, StandInOptions
from rankscope.train.proxies.train import STANDINS, StandInReport, train_standin

__all__ = ["STANDINS", "Recipe", "StandIn", "StandInOptions", "StandInReport", "train_standin"]
