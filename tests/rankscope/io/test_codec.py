"""Records to and from JSON and YAML: what is written, what is read again, and what is refused in one line."""

import json
import math
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Float

from rankscope.errors import DataError, OptionError
from rankscope.io import codec


@dataclass(frozen=True)
class Place:
    stack: str
    layer: int | None


@dataclass(frozen=True)
class Row:
    KEYS: ClassVar = ("place.stack", "place.layer", "pass=passed", "doubled", "loss", "sigma?")
    place: Place
    passed: bool
    loss: float
    sigma: Float[np.ndarray, " k"] | None = None

    @property
    def doubled(self) -> float:
        return 2 * self.loss


@dataclass(frozen=True)
class Report:
    SCHEMA: ClassVar = "rankscope/toy@2"
    name: str
    rows: tuple[Row, ...] = ()
    size: int | float | None = None
    pair: tuple[float, float] | None = None
    ranks: dict[str, list[int]] = field(default_factory=dict)
    method: Literal["svd", "joint"] = "svd"
    about: dict[str, Any] = field(default_factory=dict)
    weights: object = field(default=None, metadata=codec.UNWRITTEN)


ROW = {"stack": "encoder", "layer": None, "pass": True, "doubled": 3.0, "loss": 1.5, "sigma": [2.0, 1.0]}
DOCUMENT = {
    "schema": "rankscope/toy@2",
    "name": "é",
    "rows": [ROW, {"stack": "encoder", "layer": 1, "pass": False, "doubled": None, "loss": None}],
    "size": 3,
    "pair": [1.0, 2.0],
    "ranks": {"0.1": [1, 2]},
    "method": "joint",
    "about": {"x": [None]},
}


def report() -> Report:
    rows = (
        Row(Place("encoder", None), True, 1.5, np.array([2.0, 1.0])),
        Row(Place("encoder", 1), False, math.inf),
    )
    return Report("é", rows, 3, (1, 2), {"0.1": [1, 2]}, "joint", {"x": (math.nan,)}, weights=object())  # type: ignore[arg-type]


def test_a_record_is_written_by_its_keys_and_read_again() -> None:
    assert json.loads(codec.text(report())) == DOCUMENT
    assert list(codec.plain(report())) == list(DOCUMENT)
    assert list(codec.plain(report())["rows"][0]) == list(ROW)
    found = codec.parse(Report, DOCUMENT)
    assert codec.plain(found) == DOCUMENT
    assert found.rows[0].place == Place("encoder", None)
    assert found.rows[0].sigma is not None
    assert found.rows[0].sigma.dtype == np.float64
    assert math.isnan(found.rows[1].loss)
    assert (found.pair, found.size, found.weights) == ((1.0, 2.0), 3, None)


def test_numpy_paths_and_digits() -> None:
    value = {1: np.float32(0.1), "b": np.array([[1, 2]]), "c": Path("a/b"), "d": np.array([np.nan])}
    assert codec.plain(value, digits=3) == {"1": 0.1, "b": [[1, 2]], "c": "a/b", "d": [None]}
    assert codec.plain(np.bool_(True)) is True
    with pytest.raises(TypeError):
        codec.plain(object())


def changed(**changes: Any) -> dict[str, Any]:
    return {**DOCUMENT, **changes}


def lacking(key: str) -> dict[str, Any]:
    return {"rows": [{name: value for name, value in ROW.items() if name != key}]}


REFUSED = {
    "another version": (changed(schema="rankscope/toy@1"), " is rankscope/toy@1: this release reads rankscope/toy@2."),
    "another verb": (changed(schema="rankscope/eval@2"), " is rankscope/eval@2: this release reads rankscope/toy@2."),
    "no schema": ({"name": "x"}, " names no schema: this release reads rankscope/toy@2."),
    "no object": ([1], " names no schema: this release reads rankscope/toy@2."),
    "missing": ({"schema": "rankscope/toy@2"}, ": name is missing."),
    "missing inside": (changed(**lacking("loss")), ": rows[0].loss is missing."),
    "missing among other fields": (changed(**lacking("layer")), ": rows[0].layer is missing."),
    "no text": (changed(name=7), ": name is 7: it must be text."),
    "no flag": (changed(rows=[{**ROW, "pass": 1}]), ": rows[0].pass is 1: it must be true or false."),
    "no list": (changed(rows=5), ": rows is 5: it must be a list."),
    "no row": (changed(rows=[[]]), ": rows[0] is []: it must be a mapping of fields to values."),
    "a flag as number": (changed(rows=[{**ROW, "loss": True}]), ": rows[0].loss is True: it must be a number."),
    "text as number": (changed(rows=[{**ROW, "loss": "1"}]), ": rows[0].loss is '1': it must be a number."),
    "a share of a layer": (changed(rows=[{**ROW, "layer": 0.5}]), ": rows[0].layer is 0.5: it must be a whole number."),
    "deep": (changed(ranks={"0.1": [1, "x"]}), ": ranks.0.1[1] is 'x': it must be a whole number."),
    "null in a whole number": (changed(ranks={"a": [None]}), ": ranks.a[0] is None: it must be a whole number."),
    "of no kind": (changed(size="big"), ": size is 'big': it must be a whole number."),
    "no choice": (changed(method="svdd"), ": method 'svdd' is not known: did you mean 'svd'? Choose from svd, joint."),
    "no array": (changed(rows=[{**ROW, "sigma": ["a"]}]), ": rows[0].sigma is ['a']: it must be an array of numbers."),
    "short": (changed(pair=[1.0]), ": pair is [1.0]: it must be a list of 2."),
    "long": (changed(pair=[1.0, 2, 3]), ": pair is [1.0, 2, 3]: it must be a list of 2."),
    "ragged": (
        changed(rows=[{**ROW, "sigma": [[1], 2]}]),
        ": rows[0].sigma is [[1], 2]: it must be an array of numbers.",
    ),
    "another shape": (
        changed(rows=[{**ROW, "sigma": [[1]]}]),
        ": rows[0].sigma is [[1]]: it must be an array of numbers.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_document_is_refused_in_one_line(case: str) -> None:
    data, message = REFUSED[case]
    with pytest.raises(DataError) as caught:
        codec.parse(Report, data, "a.json")
    assert str(caught.value) == f"a.json{message}"


def test_a_document_may_hold_what_a_later_release_added_and_a_config_may_not() -> None:
    later = changed(new=1, rows=[{**ROW, "newer": [None]}], command="rankscope toy")
    assert codec.parse(Report, later).rows[0].place.stack == "encoder"
    given = {"name": "x", "rows": [{**ROW, "los": 1}]}
    with pytest.raises(
        OptionError, match=r"^my\.yaml: field 'rows\[0\]\.los' is not known: did you mean 'rows\[0\]\.l"
    ):
        codec.build(Report, given, where="my.yaml")


def test_a_record_without_a_schema_is_of_this_release() -> None:
    assert codec.parse(Row, ROW).place == Place("encoder", None)
    with pytest.raises(DataError, match=r"^field 'los' is not known: did you mean 'loss'"):
        codec.parse(Row, {**ROW, "los": 1})


def test_numbers_of_a_config_are_finite_and_may_be_texts() -> None:
    assert codec.build(float, "1e-3") == 0.001
    assert codec.build(tuple[int, ...], [1, 2]) == (1, 2)
    for wrong in (math.nan, math.inf, "1e999"):
        with pytest.raises(OptionError, match=r"loss is .*: it must be a finite number"):
            codec.build(float, wrong, "loss")
    with pytest.raises(OptionError, match="loss is None: it must be a number"):
        codec.build(float, None, "loss")


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "toy.json"
    codec.write(file, report())
    assert codec.plain(codec.read(Report, file)) == DOCUMENT
    assert codec.plain(codec.read(Report, tmp_path, "toy.json")) == DOCUMENT
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(DOCUMENT))
    assert codec.load(tmp_path / "toy.yaml") == DOCUMENT


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.json", None, "there is no file or folder .*gone.json: name a saved result"),
        ("", None, r"folder .* holds no toy\.json"),
        ("a.json", b"{", r"a\.json is not valid JSON"),
        ("a.json", b"\xff", r"a\.json is not valid JSON"),
        ("a.json", b"[" * 100_000, r"a\.json is not valid JSON"),
        ("a.yaml", b"a: b: c", r"YAML: mapping values are not allowed here, line 1, column 5\."),
        ("a.yaml", b"a: [", r"a\.yaml is not valid YAML"),
        ("a.yaml", b"a: !!timestamp x", r"a\.yaml is not valid YAML"),
        ("a.yaml", b"a: !!int ''", r"a\.yaml is not valid YAML"),
        ("a.json", b"{}", r"a\.json names no schema"),
    ],
)
def test_files_that_are_none(name: str, content: bytes | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        codec.read(Report, tmp_path / name, "toy.json")
    assert "\n" not in str(caught.value)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*DOCUMENT, *ROW, "x"]), inner),
    max_leaves=8,
)


@settings(deadline=None)
@given(VALUES)
def test_whatever_is_given_is_read_or_refused(value: Any) -> None:
    for data in (value, changed(rows=value), changed(rows=[value]), changed(pair=value), changed(size=value)):
        try:
            found = codec.parse(Report, data)
        except DataError as error:
            assert "\n" not in str(error)  # noqa: PT017
        else:
            assert codec.plain(codec.parse(Report, codec.plain(found))) == codec.plain(found)


def test_the_codec_alone_loads_no_pydantic() -> None:
    line = "import sys, rankscope.io.codec; print({'pydantic', 'numpy', 'yaml', 'torch'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", line], text=True).strip() == "set()"


@pytest.mark.parametrize(
    "text", ["&a [9" + "0" * 400 + ", *a]", '&a ["\\ud800", *a]', "&a {b: *a, c: 9" + "0" * 400 + "}"]
)
def test_what_no_float_or_text_can_hold_is_found_in_lists_within_themselves(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(DataError, match="is not valid YAML"):
        codec.load(tmp_path / "a.yaml")
