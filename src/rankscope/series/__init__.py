"""Input corpora: generated signals and user files, as a matrix of one series per row."""

from rankscope.series.corpus import SIGNALS, corpus
from rankscope.series.user import SeriesTable, series_from_file, windows

__all__ = ["SIGNALS", "SeriesTable", "corpus", "series_from_file", "windows"]
