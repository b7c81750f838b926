"""Small proxy models of every family, trained on CPU in minutes: ranks are meaningful only for trained weights."""

from rankscope.train.proxies.recipe import ProxyModel, ProxyOptions, Recipe
from rankscope.train.proxies.train import PROXIES, ProxyReport, train_proxy

__all__ = ["PROXIES", "Recipe", "ProxyModel", "ProxyOptions", "ProxyReport", "train_proxy"]
