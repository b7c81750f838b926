"""Data sets and terms of GIFT-Eval."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.errors import DataError
from rankscope.io import codec
from rankscope.series import read_series
from rankscope.series.files import ENDINGS, check_arrow
from rankscope.series.frequency import quiet
from rankscope.series.record import Entry
from rankscope_eval.reasons import as_data_error
from rankscope_eval.suites import named

TERMS = {"short": 1, "medium": 10, "long": 15}
"""Term → its horizon over the short one."""
HORIZONS = {"M": 12, "W": 8, "D": 30, "H": 48, "T": 48, "S": 60}
M4_HORIZONS = {"A": 6, "Q": 8, "M": 18, "W": 13, "D": 14, "H": 48}
"""Short horizons by frequency, without its multiple."""
TESTED, MOST_WINDOWS = 0.1, 20
"""Share of the shortest series that windows are to cover, and the most windows."""
_OLD = {"Y": "A", "YE": "A", "QE": "Q", "ME": "M", "MS": "M", "QS": "Q", "YS": "A", "h": "H", "min": "T", "s": "S"}
"""Names of frequencies in the table above, by pandas' present ones."""


@dataclass(frozen=True)
class GiftSet:
    """A data set.

    Attributes:
        folder: path of its Arrow folder within the folder of all.
        name: data set and frequency, as in results.
        domain: as in results.
        variates: series that were measured together, as in results.
        longer: True if it is forecast at medium and long terms, too.
    """

    folder: str
    name: str
    domain: str
    variates: int
    longer: bool = False


@dataclass(frozen=True)
class Configuration:
    """A data set at one term."""

    source: GiftSet
    term: str

    @property
    def name(self) -> str:
        """Name in results: ``m4_hourly/H/short``."""
        return f"{self.source.name}/{self.term}"


def configurations(names: Sequence[str] | None = None) -> list[Configuration]:
    """All 97 configurations, or the named ones.

    Raises:
        DataError: there is none of that name.
    """
    path = Path(str(resources.files("rankscope_eval") / "gift_eval" / "sets.yaml"))
    sets = [codec.build(GiftSet, fields, where=path.name, error=DataError) for fields in codec.load(path, "data sets")]
    found = [Configuration(one, term) for one in sets for term in TERMS if term == "short" or one.longer]
    return named(found, lambda one: one.name, names)


@dataclass(frozen=True)
class Loaded:
    """Series of a data set, the variates of each apart, and their frequency."""

    entries: list[Entry]
    freq: str

    def horizon(self, configuration: Configuration) -> int:
        """Steps of a window.

        Raises:
            DataError: GIFT-Eval has no horizon for the frequency.
        """
        from pandas.tseries.frequencies import to_offset

        with quiet():
            base = str(to_offset(self.freq).name).split("-")[0]
        table = M4_HORIZONS if "m4" in configuration.source.folder else HORIZONS
        steps = table.get(_OLD.get(base, base))
        if steps is None:
            raise DataError(f"{configuration.name}: GIFT-Eval has no horizon for the frequency {self.freq}.")
        return steps * TERMS[configuration.term]

    def windows(self, configuration: Configuration) -> int:
        """Windows at the end of each series.

        Raises:
            DataError: a series is too short for them.
        """
        horizon = self.horizon(configuration)
        shortest = min(self.entries, key=lambda entry: len(entry["target"]))
        length = len(shortest["target"])
        count = min(max(1, math.ceil(TESTED * length / horizon)), MOST_WINDOWS)
        count = 1 if "m4" in configuration.source.folder else count
        if length <= count * horizon:
            raise DataError(
                f"{configuration.name}: series {shortest['item_id']!r} has {length} values, which {count} window(s) of "
                f"{horizon} steps leave no context of."
            )
        return count


def place(source: GiftSet, data: Path) -> Path | None:
    """Return the Arrow folder of a data set, or a file of series of its name; None where there is neither."""
    folder = data / source.folder
    files = (folder.with_name(folder.name + ending) for ending in ENDINGS)
    return folder if folder.is_dir() else next((file for file in files if file.is_file()), None)


def load(path: Path) -> Loaded:
    """Load a data set from its `place`.

    Raises:
        DataError: it cannot be read.
    """
    if path.is_dir():
        return _from_arrow(path)
    series = read_series(path)
    entries: list[Entry] = [{**one.entry, "target": one.entry["target"].astype(np.float32)} for one in series]
    return Loaded(entries, str(series[0].start.freqstr))


def _from_arrow(folder: Path) -> Loaded:
    import pandas as pd

    try:
        import datasets
    except ImportError as error:
        raise DataError(f"{folder} needs the package datasets: pip install 'rankscope[hub]'.") from error
    with as_data_error(f"{folder} is not a data set of GIFT-Eval"):
        for one in json.loads((folder / "state.json").read_text(encoding="utf-8"))["_data_files"]:
            check_arrow(folder / one["filename"])
        table: Any = datasets.load_from_disk(str(folder)).with_format("numpy")
        freq = str(table[0]["freq"])
        entries: list[Any] = []
        for row in table:
            target = np.asarray(row["target"], dtype=np.float32)
            with quiet():
                start = pd.Period(pd.Timestamp(np.asarray(row["start"]).item()), freq=freq)
            item = str(row["item_id"])
            if start is pd.NaT:
                raise ValueError(f"series {item!r} has no start")
            if target.ndim not in (1, 2) or not target.size:
                raise ValueError(f"series {item!r} has no values, or more than two dimensions")
            if target.ndim == 1:
                entries.append({"item_id": item, "start": start, "target": target})
            else:
                entries += [
                    {"item_id": f"{item}_dim{at}", "start": start, "target": one} for at, one in enumerate(target)
                ]
    if not entries:
        raise DataError(f"{folder} is not a data set of GIFT-Eval: it holds no series.")
    return Loaded(entries, freq)
