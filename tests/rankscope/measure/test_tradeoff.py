import json
from dataclasses import replace
from pathlib import Path

import pytest

from rankscope import read_table2
from rankscope.errors import DataError
from rankscope.io import codec
from rankscope.measure.tradeoff import (
    DONE,
    FAILED,
    OUT_OF_REACH,
    PUBLISHED,
    DatasetScore,
    Measures,
    Original,
    Table2Point,
    Table2Report,
)


def point(seed: int | None, wql: float, **changes) -> Table2Point:
    made = Table2Point(f"0.5-joint-{seed}", 0.5, "joint", "energy", seed, measures=Measures(0.49, wql, overlap=0.9))
    return replace(made, **changes)


@pytest.fixture
def report() -> Table2Report:
    original = Original(100, 400, 40, scores=(DatasetScore("b", "d", 0.3, None),))
    lost = Table2Point("0.01-svd", 0.01, "svd", "default", None, OUT_OF_REACH, "ratio 0.01 is out of reach")
    points = (point(0, 1.2), point(2, 1.1), point(1, 1.5), point(3, 9.9, state=FAILED, reason="it broke"), lost)
    return Table2Report("toy", "t5", {"seed": 0}, original, points)


def test_a_row_is_the_median_and_the_range_of_what_is_done(report: Table2Report) -> None:
    row, lost = report.rows
    assert (row.state, row.reason, row.seeds) == (DONE, "it broke", (0, 1, 2))
    assert [one.relative_WQL for one in (row.low, row.median, row.high)] == [1.1, 1.2, 1.5]
    assert row.median.relative_MASE is None
    assert (lost.state, lost.seeds, lost.median) == (OUT_OF_REACH, (), Measures())
    assert [point.seed for point in report.failed] == [3]


def test_documents_and_tables_say_the_same(report: Table2Report, tmp_path: Path) -> None:
    document = codec.plain(report)
    assert document["schema"] == "rankscope/table2@1"
    assert document["rows"][0]["relative_WQL"] == {"median": 1.2, "min": 1.1, "max": 1.5}
    assert document["rows"][0]["relative_LPPL"] is None
    frame = report.to_frame()
    assert frame.loc[0, ["relative_WQL", "relative_WQL_min", "relative_WQL_max"]].tolist() == [1.2, 1.1, 1.5]
    assert frame["state"].tolist() == [DONE, OUT_OF_REACH]
    (tmp_path / "table2.json").write_text(json.dumps(document))
    assert read_table2(tmp_path) == report


@pytest.mark.parametrize("content", ["{", "[]", '{"schema": "rankscope/eval@1"}', '{"schema": "rankscope/table2@1"}'])
def test_what_is_no_table_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(DataError, match=r"holds no table2\.json"):
        read_table2(tmp_path)
    (tmp_path / "table2.json").write_text(content)
    with pytest.raises(DataError, match=r"table2\.json"):
        read_table2(tmp_path)


def test_published_rows_end_with_the_original() -> None:
    assert [row.ratio for row in PUBLISHED] == sorted(row.ratio for row in PUBLISHED)
    assert {getattr(PUBLISHED[-1], name) for name in ("ratio", "in_domain_WQL", "overlap", "text_LPPL")} == {1.0}
