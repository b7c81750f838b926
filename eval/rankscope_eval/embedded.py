"""Embedded data sets: public-domain series from installed libraries, and synthetic series."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from rankscope.errors import DataError, unknown_choice
from rankscope.series import Series
from rankscope.series.frequency import period


def embedded_series(name: str) -> list[Series]:
    """Return the series of an embedded data set.

    Raises:
        DataError: unknown data set, or its library is not installed.
    """
    if name not in EMBEDDED:
        raise DataError(unknown_choice("embedded data set", name, EMBEDDED))
    try:
        return EMBEDDED[name]()
    except ImportError as error:
        raise DataError(f"embedded data set {name!r} needs the package {error.name!r}: pip install it.") from error


def _series(item_id: str, start: str, freq: str, values: object) -> Series:
    return Series(item_id, period(start, freq, item_id), np.asarray(values, dtype=float))


def _statsmodels(name: str) -> Any:
    return import_module(f"statsmodels.datasets.{name}").load_pandas().data


def _co2() -> list[Series]:
    """Atmospheric CO₂ at Mauna Loa, weekly 1958 to 2001, with gaps (statsmodels, public domain)."""
    return [_series("co2", "1958-03-29", "W-SAT", _statsmodels("co2")["co2"])]


def _sunspots() -> list[Series]:
    """Yearly sunspot activity, 1700 to 2008 (statsmodels, public domain)."""
    return [_series("sunspots", "1700", "Y", _statsmodels("sunspots")["SUNACTIVITY"])]


def _nile() -> list[Series]:
    """Yearly flow of the Nile at Aswan, 1871 to 1970 (statsmodels, public domain)."""
    return [_series("nile", "1871", "Y", _statsmodels("nile")["volume"])]


def _elnino() -> list[Series]:
    """Monthly sea surface temperature in the Pacific, 1950 to 2010 (statsmodels, public domain)."""
    table = _statsmodels("elnino")
    return [_series("elnino", "1950-01", "M", table.drop(columns="YEAR").to_numpy(float).ravel())]


def _macrodata() -> list[Series]:
    """Quarterly accounts of the United States, 1959 to 2009 (statsmodels, public domain)."""
    table = _statsmodels("macrodata")
    names = (
        "realgdp",
        "realcons",
        "realinv",
        "realgovt",
        "realdpi",
        "cpi",
        "m1",
        "tbilrate",
        "unemp",
        "infl",
    )
    return [_series(name, "1959-01", "Q", table[name]) for name in names]


def _air_passengers() -> list[Series]:
    """Monthly international air passengers, 1949 to 1960 (Box and Jenkins; statsforecast)."""
    from statsforecast.utils import AirPassengers

    return [_series("air_passengers", "1949-01", "M", AirPassengers)]


def _elec_equip() -> list[Series]:
    """Monthly turnover of electrical equipment in the euro area, 1995 to 2016 (statsmodels)."""
    return [_series("elec_equip", "1995-01", "M", _statsmodels("elec_equip").iloc[:, 0])]


SERIES_PER_SET = 6


def _generated(name: str, seed: int, start: str, freq: str, draw: Callable[..., np.ndarray]) -> list[Series]:
    """Generate ``SERIES_PER_SET`` series, each from its own seeded stream."""
    rngs = [np.random.Generator(np.random.PCG64([seed, i])) for i in range(SERIES_PER_SET)]
    return [_series(f"{name}_{i}", start, freq, draw(rng)) for i, rng in enumerate(rngs)]


def _hourly(rng: np.random.Generator) -> np.ndarray:
    """Generate daily and weekly seasonality with harmonics, plus level and noise."""
    t = np.arange(24 * 7 * 4)
    day = sum(rng.normal(0, 1 / k) * np.sin(2 * np.pi * k * t / 24 + rng.uniform(0, 2 * np.pi)) for k in (1, 2, 3))
    week = rng.uniform(0.3, 1) * np.sin(2 * np.pi * t / 168 + rng.uniform(0, 2 * np.pi))
    return rng.uniform(5, 50) * (4 + day + week + rng.normal(0, 0.2, len(t)))


def _daily(rng: np.random.Generator) -> np.ndarray:
    """Generate a day-of-week profile times a slow exponential trend, with noise."""
    t = np.arange(365)
    profile = rng.uniform(0.4, 1.6, 7)
    return rng.uniform(20, 200) * profile[t % 7] * np.exp(rng.normal(0, 0.6) * t / 365) * rng.lognormal(0, 0.1, len(t))


def _ar1(rng: np.random.Generator) -> np.ndarray:
    """First-order autoregression, coefficient 0.8, around a level."""
    noise = rng.normal(0, 1, 300)
    for step in range(1, len(noise)):
        noise[step] += 0.8 * noise[step - 1]
    return rng.uniform(5, 20) + noise


def _random_walk(rng: np.random.Generator) -> np.ndarray:
    """Random walk with a small drift."""
    return rng.uniform(50, 150) + np.cumsum(rng.normal(0.05, 1, 300))


def _intermittent(rng: np.random.Generator) -> np.ndarray:
    """Demand of Poisson size on about a third of the days, zero on the others."""
    return (rng.random(300) < 0.35) * rng.poisson(rng.uniform(3, 12), 300).astype(float)


def _level_shift(rng: np.random.Generator) -> np.ndarray:
    """A monthly season whose level jumps once, in the middle third."""
    t = np.arange(180)
    jump = rng.uniform(3, 8) * rng.choice([-1, 1]) * (t >= rng.integers(60, 120))
    return 30 + jump + rng.uniform(1, 3) * np.sin(2 * np.pi * t / 12 + rng.uniform(0, 6)) + rng.normal(0, 0.5, len(t))


KIND_SERIES = 20
KINDS: dict[str, tuple[str, str, str, int]] = {
    "kind_strong_hourly": ("strong", "hourly", "h", 1088),
    "kind_strong_halfhourly": ("strong", "half-hourly", "30min", 1088),
    "kind_strong_quarterhourly": ("strong", "quarter-hourly", "15min", 1120),
    "kind_strong_5min": ("strong", "five-minutely", "5min", 1088),
    "kind_strong_daily": ("strong", "daily", "D", 800),
    "kind_weather_hourly": ("weather", "hourly", "h", 1072),
    "kind_mixed_weekly": ("mixed", "weekly", "W-SUN", 400),
    "kind_multiplicative_monthly": ("multiplicative", "monthly", "M", 150),
    "kind_drifting_hourly": ("drifting", "hourly", "h", 700),
    "kind_trending_quarterly": ("trending", "quarterly", "Q", 60),
    "kind_walk_business": ("walk", "business", "B", 500),
    "kind_counts_daily": ("counts", "daily", "D", 400),
    "kind_intermittent_daily": ("intermittent", "daily", "D", 400),
    "kind_steps_5min": ("steps", "five-minutely", "5min", 1000),
    "kind_composed_monthly": ("composed", "monthly", "M", 200),
}
"""Data sets of suite ``generated`` → kind, calendar, frequency and length."""


def _kind(name: str) -> list[Series]:
    """Generate series of one kind of the training corpus, from a random stream not used in training."""
    from rankscope.train.data.structured import structured_series

    kind, calendar, freq, length = KINDS[name]
    rng = np.random.default_rng([2026, list(KINDS).index(name)])
    values = structured_series(rng, KIND_SERIES, length, kind=kind, calendar=calendar)
    return [_series(f"{name}_{i}", "2001-01-01", freq, row) for i, row in enumerate(values)]


EMBEDDED: dict[str, Callable[[], list[Series]]] = {
    "co2": _co2,
    "sunspots": _sunspots,
    "nile": _nile,
    "elnino": _elnino,
    "macrodata": _macrodata,
    "air_passengers": _air_passengers,
    "elec_equip": _elec_equip,
    "generated_hourly": lambda: _generated("generated_hourly", 11, "2020-01-06", "h", _hourly),
    "generated_daily": lambda: _generated("generated_daily", 12, "2020-01-06", "D", _daily),
    "generated_ar1": lambda: _generated("generated_ar1", 13, "2020-01-06", "D", _ar1),
    "generated_random_walk": lambda: _generated("generated_random_walk", 14, "2020-01-06", "D", _random_walk),
    "generated_intermittent": lambda: _generated("generated_intermittent", 15, "2020-01-06", "D", _intermittent),
    "generated_level_shift": lambda: _generated("generated_level_shift", 16, "2000-01", "M", _level_shift),
    **{name: functools.partial(_kind, name) for name in KINDS},
}
"""Embedded data sets by name; ``generated_`` and ``kind_`` are synthetic."""
