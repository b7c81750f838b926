"""GIFT-Eval (arXiv:2410.10393): its data sets, terms, windows and metrics, and the files of a submission."""

from rankscope_eval.gift_eval.report import GiftPair, GiftReport, GiftRow, write_submission
from rankscope_eval.gift_eval.run import evaluate_gift
from rankscope_eval.gift_eval.sets import Configuration, configurations

__all__ = [
    "evaluate_gift",
    "configurations",
    "Configuration",
    "GiftReport",
    "GiftRow",
    "GiftPair",
    "write_submission",
]
