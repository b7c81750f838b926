"""Small models of every family, trained on the CPU in minutes: ranks are only worth measuring on trained weights."""

from rankscope.train.proxies.recipe import ProxyModel, ProxyOptions, Recipe
from rankscope.train.proxies.train import PROXIES, ProxyReport, train_proxy

__all__ = ["PROXIES", "Recipe", "ProxyModel", "ProxyOptions", "ProxyReport", "train_proxy"]
