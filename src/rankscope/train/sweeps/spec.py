"""Specification of a sweep: a base run, the fields that vary, and the points that follow."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankscope.errors import OptionError, check_count, unknown_choice
from rankscope.io import codec
from rankscope.measure.sweep import SWEEP_EPS
from rankscope.numerics.rank import validate_levels
from rankscope.train.config import PretrainConfig, config_from_dict

SHIPPED = Path(__file__).with_name("shipped")
REFERENCE = "@"
"""``embedding.model: "@name"`` inherits from the point ``name`` of the same sweep, which is trained first."""

Fields = dict[str, Any]
"""Dotted config fields and their values: what a point changes in the base."""


@dataclass(frozen=True)
class Point:
    """One run of a sweep.

    Attributes:
        name: names its folder; letters, digits, ``-``, ``_`` and ``+``.
        fields: what it changes in the base.
        config: its whole run; an inherited embedding still says ``@name``.
    """

    name: str
    fields: Fields
    config: PretrainConfig

    @property
    def needs(self) -> str:
        """Name of the point that it inherits its embedding from; empty for none."""
        return inherited(self.config)


@dataclass(frozen=True)
class SweepSpec:
    """A sweep; its YAML file holds these fields, ``base`` like a file of ``rankscope pretrain``.

    Attributes:
        base: the run that every point varies.
        points: name → fields of each point. Either these or ``axes``.
        axes: name → values. The name is a dotted field and the values a list; or the name is free and the values map
            several fields to lists of one length that vary together. The points are all combinations.
        seeds: every point is trained once with each; the base's seed where there are none.
        eps: tolerances of the ε-ranks.
        about: one line on what it shows.
        name: of the sweep: that of its file.
    """

    base: PretrainConfig
    points: dict[str, Fields] = field(default_factory=dict)
    axes: dict[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    eps: tuple[float, ...] = SWEEP_EPS
    about: str = ""
    name: str = ""

    def expand(self) -> tuple[Point, ...]:
        """All points in order: seeds outermost, the last axis fastest.

        Raises:
            OptionError: a field is unknown, a value is refused, an inherited point is missing, names clash.
        """
        varied = list(self.points.items()) if self.points else list(_combinations(self.axes))
        points = []
        for seed in self.seeds or (self.base.seed,):
            suffix = f"-s{seed}" if len(self.seeds) > 1 else ""
            for name, fields in varied:
                points.append(self._point(name, suffix, {**fields, "seed": seed} if self.seeds else fields))
        _check_names(self.name, points)
        return tuple(points)

    def _point(self, name: str, suffix: str, fields: Fields) -> Point:
        try:
            config = with_fields(self.base, fields)
        except OptionError as error:
            raise OptionError(f"sweep {self.name!r}, point {name!r}: {error}") from error
        if config.validation.every:
            raise OptionError(f"sweep {self.name!r}: validation.every has no place in a sweep: score its points.")
        fields = _as_read(fields, config)
        if config.embedding.model.startswith(REFERENCE):
            config = with_fields(config, {"embedding.model": config.embedding.model + suffix})
        return Point(name + suffix, fields, config)


def read_sweep(path: Path | str) -> SweepSpec:
    """Read a sweep from YAML.

    Raises:
        OptionError: the file is missing, no YAML mapping, names an unknown field or has a value that makes no sense.
    """
    file = Path(path)
    loaded = codec.load(file, "sweep", OptionError)
    if not isinstance(loaded, dict):
        raise OptionError(f"sweep {file} must be a mapping with base, and points or axes.")
    known = [f.name for f in dataclasses.fields(SweepSpec) if f.name != "name"]
    for name in loaded:
        if name not in known:
            raise OptionError(unknown_choice(f"sweep {file}: field", name, known))
    try:
        return _checked({**loaded, "name": file.stem})
    except OptionError as error:
        raise OptionError(f"sweep {file}: {error}") from error


def find_sweep(name: str) -> SweepSpec:
    """Read a sweep by the path of its YAML file, or a shipped one by its name.

    Raises:
        OptionError: it is neither, or it cannot be used.
    """
    file = Path(name)
    if file.is_file():
        return read_sweep(file)
    if name in shipped_sweeps():
        return read_sweep(SHIPPED / f"{name}.yaml")
    raise OptionError(unknown_choice("sweep", name, shipped_sweeps(), "The path of a YAML file works too."))


def shipped_sweeps() -> tuple[str, ...]:
    """Names of the shipped sweeps."""
    return tuple(sorted(file.stem for file in SHIPPED.glob("*.yaml")))


def inherited(config: PretrainConfig) -> str:
    """Name of the point of the same sweep that a config inherits its embedding from; empty for none."""
    model = config.embedding.model
    return model.removeprefix(REFERENCE) if model.startswith(REFERENCE) else ""


def with_fields(config: PretrainConfig, fields: Mapping[str, Any]) -> PretrainConfig:
    """Return a run with dotted fields replaced; a section that was off (``low_rank: null``) starts at its defaults.

    Raises:
        OptionError: a field is unknown, or the run makes no sense with it.
    """
    values = codec.plain(config)
    for dotted, value in fields.items():
        *sections, name = dotted.split(".")
        inner = values
        for section in sections:
            if inner.get(section) is None and section in inner:
                inner[section] = {}
            if not isinstance(inner.get(section), dict):
                raise OptionError(unknown_choice("config field", dotted, _dotted_names(config)))
            inner = inner[section]
        inner[name] = value
    return config_from_dict(values)


def with_steps(config: PretrainConfig, steps: int) -> PretrainConfig:
    """Return a run with another number of steps; all that is counted in steps shrinks or grows with it.

    Raises:
        OptionError: ``steps`` is below 1.
    """
    check_count("steps", steps)
    share = steps / config.max_steps

    def scaled(points: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(round(step * share) for step in points))

    spectra = dataclasses.replace(
        config.spectra,
        steps=scaled(config.spectra.steps),
        every=max(1, round(config.spectra.every * share)) if config.spectra.every else 0,
    )
    return dataclasses.replace(
        config,
        max_steps=steps,
        warmup_steps=int(config.warmup_steps * share),
        decay_steps=int(config.decay_steps * share),
        save_steps=max(1, round(config.save_steps * share)),
        log_steps=max(1, round(config.log_steps * share)),
        keep_steps=scaled(config.keep_steps),
        mixture=dataclasses.replace(config.mixture, curriculum=round(config.mixture.curriculum * share)),
        spectra=spectra,
    )


def _checked(values: dict[str, Any]) -> SweepSpec:
    if bool(values.get("points")) == bool(values.get("axes")):
        raise OptionError("give either points or axes, one of them.")
    for name, held in (("base", dict), ("points", dict), ("axes", dict), ("seeds", list)):
        if name in values and not isinstance(values[name], held):
            raise OptionError(f"{name} must be a {'mapping' if held is dict else 'list'}, not {values[name]!r}.")
    for kind in ("points", "axes"):
        for name in values.get(kind, {}):
            if not isinstance(name, str):
                raise OptionError(f"{kind}: the name {name!r} is not text: write '{name}', in quotes.")
    for name, fields in values.get("points", {}).items():
        if not isinstance(fields, dict):
            raise OptionError(f"point {name!r} must map dotted fields to values, not {fields!r}.")
    seeds = values.get("seeds", [])
    if not all(isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 for seed in seeds):
        raise OptionError(f"seeds must be whole numbers of at least 0, not {seeds!r}.")
    levels = codec.build(tuple[float, ...], values.get("eps", SWEEP_EPS), "eps")
    read = {
        "base": config_from_dict(values.get("base", {})),
        "seeds": tuple(dict.fromkeys(seeds)),
        "eps": validate_levels(levels),
        "about": codec.build(str, values.get("about", ""), "about"),
    }
    spec = SweepSpec(**{**values, **read})
    spec.expand()
    return spec


def _as_read(fields: Fields, config: PretrainConfig) -> Fields:
    """Numbers in place of those values that YAML took for text, such as ``1e-3``."""

    def held(dotted: str) -> Any:
        value: Any = config
        for name in dotted.split("."):
            value = getattr(value, name, None)
        return value

    return {dotted: held(dotted) if isinstance(value, str) else value for dotted, value in fields.items()}


def _combinations(axes: Mapping[str, Any]) -> Iterator[tuple[str, Fields]]:
    for choice in itertools.product(*(_axis(name, values) for name, values in axes.items())):
        yield (
            "-".join(name for name, _ in choice),
            {key: value for _, fields in choice for key, value in fields.items()},
        )


def _axis(name: str, values: Any) -> list[tuple[str, Fields]]:
    """Values of one axis as (part of the point's name, fields)."""
    linked = {name: values} if isinstance(values, list) else values
    if not isinstance(linked, dict) or not linked or not all(isinstance(v, list) and v for v in linked.values()):
        raise OptionError(f"axis {name!r} is {values!r}: it must be a list of values, or map fields to such lists.")
    lengths = {len(one) for one in linked.values()}
    if len(lengths) > 1:
        counts = ", ".join(f"{key} {len(one)}" for key, one in linked.items())
        raise OptionError(f"axis {name!r} links lists of different lengths: {counts}.")
    short = name.rpartition(".")[2]
    first = next(iter(linked.values()))
    return [
        (f"{short}-{_file_safe(first[i])}", {key: one[i] for key, one in linked.items()}) for i in range(len(first))
    ]


def _file_safe(value: Any) -> str:
    """Write a value as part of a folder's name.

    >>> _file_safe(0.27), _file_safe("published"), _file_safe(-1)
    ('0p27', 'published', '-1')
    """
    return re.sub(r"[^A-Za-z0-9_+-]", "_", str(value).replace(".", "p"))


def _check_names(sweep: str, points: Sequence[Point]) -> None:
    names = [point.name for point in points]
    for point in points:
        if not re.fullmatch(r"[A-Za-z0-9_+-]+", point.name):
            raise OptionError(f"sweep {sweep!r}: point {point.name!r} may hold letters, digits, '-', '_' and '+' only.")
        if names.count(point.name) > 1:
            raise OptionError(f"sweep {sweep!r} has two points {point.name!r}: make their values or names differ.")
        if point.needs and (point.needs not in names or names.index(point.needs) >= names.index(point.name)):
            raise OptionError(
                f"sweep {sweep!r}: point {point.name!r} inherits from {REFERENCE}{point.needs}, "
                "which is not an earlier point of the sweep."
            )


def _dotted_names(config: PretrainConfig) -> list[str]:
    names = []
    for name, value in codec.plain(config).items():
        names += [f"{name}.{inner}" for inner in value] if isinstance(value, dict) else [name]
    return names
