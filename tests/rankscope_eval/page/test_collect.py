"""Files that are results, and the message where none is."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankscope.compress.report import CompressReport
from rankscope.errors import DataError
from rankscope.io import codec
from rankscope_eval.page import lineage
from rankscope_eval.page.collect import collect
from rankscope_eval.page.documents import KINDS
from rankscope_eval.report import EvalReport


def test_a_missing_folder_a_file_and_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no folder .*nowhere"):
        collect(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"holds no result of rankscope: looked for .* found no file"):
        collect(tmp_path)
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(DataError, match=r"a\.txt is a file"):
        collect(tmp_path / "a.txt")
    with pytest.raises(DataError, match=r"found 1 other file, such as a\.txt; `rankscope spectrum"):
        collect(tmp_path)


@pytest.mark.parametrize("version", [0, 2, 17])
def test_results_of_another_version_alone(one_document: Callable[..., Path], scores: Any, version: int) -> None:
    folder = one_document({**scores(), "schema": f"rankscope/eval@{version}"})
    with pytest.raises(
        DataError, match=rf"result\.json is rankscope/eval@{version}, this release reads rankscope/eval@1"
    ):
        collect(folder)


def test_another_version_beside_a_result_is_named(one_document: Callable[..., Path], scores: Any) -> None:
    one_document({**scores(), "schema": "rankscope/spectrum@2"}, "new.json")
    found = collect(one_document(scores()))
    assert [one.path for one in found.documents] == ["result.json"]
    assert found.unused[0].path == "new.json"
    assert "this release reads rankscope/spectrum@1" in found.unused[0].reason


def test_a_compression_of_version_1_is_shown(results: Path, one_document: Callable[..., Path]) -> None:
    now = json.loads((results / "small" / "compress.json").read_text())
    old = {key: value for key, value in now.items() if key not in ("asked", "selected_ratio")}
    old |= {"schema": "rankscope/compress@1", "target_ratio": None, "ratio": now["selected_ratio"]}
    (found,) = collect(one_document(old)).documents
    assert found.schema == "rankscope/compress@1"
    assert found.content.ratio == pytest.approx(now["ratio"], rel=1e-12)
    assert (found.content.selected_ratio, found.content.asked) == (now["selected_ratio"], {"eps": 0.7})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "no JSON"),
        ("\xff", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ('{"schema": "rankscope/eval@1"}', "suite is missing"),
        ('{"schema": "rankscope/flow@1", "model": 7}', "model is 7: it must be text"),
        (
            '{"schema": "rankscope/theory@1", "checks": [{"id": "a", "instances": 1.5}]}',
            "checks[0].instances is 1.5: it must be a whole number",
        ),
    ],
)
def test_a_damaged_result_is_named_and_others_are_used(
    one_document: Callable[..., Path], scores: Any, content: str, reason: str
) -> None:
    folder = one_document("", "bad.json")
    (folder / "bad.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(DataError, match=r"holds no result that can be used: bad\.json: damaged"):
        collect(folder)
    found = collect(one_document(scores()))
    assert len(found.documents) == 1
    (bad,) = found.unused
    assert (bad.path, bad.damaged) == ("bad.json", True)
    assert reason in bad.reason


def cut_anywhere(value: Any) -> list[Any]:
    """The document once for every key that it lacks, and once for every value that is a list too deep."""
    if isinstance(value, dict):
        lacking = [{k: v for k, v in value.items() if k != key} for key in value]
        odd = [{**value, key: other} for key in value for other in ([[]], {"a": "$"}, "<b>$", None, True, -1)]
        deeper = [{**value, key: one} for key, item in value.items() for one in cut_anywhere(item)]
        return lacking + odd + deeper
    return [[one, *value[1:]] for one in cut_anywhere(value[0])] if isinstance(value, list) and value else []


@pytest.mark.parametrize("name", ["theory", "embed", "small/compress", "eval", "bench", "flow", "spectrum"])
def test_whatever_a_document_lacks_it_is_read_or_refused(results: Path, name: str) -> None:
    document = json.loads((results / f"{name}.json").read_text())
    kind = KINDS[document["schema"].partition("@")[0].partition("/")[2]]
    refused = 0
    for one in cut_anywhere(document):
        with contextlib.suppress(DataError):  # any other error is a fault of ours
            kind.read(one)
            continue
        refused += 1
    assert refused > 10


def test_further_fields_are_no_fault(results: Path) -> None:
    for name in ("spectrum", "flow", "embed", "eval", "bench"):
        document = json.loads((results / f"{name}.json").read_text())
        rows = next(
            value for value in document.values() if isinstance(value, list) and value and isinstance(value[0], dict)
        )
        plain = KINDS[name].read(document)
        rows[0]["new"] = 1
        assert type(KINDS[name].read({**document, "newer": [None]})) is type(plain)


def test_hidden_files_links_to_folders_and_unfinished_runs_are_passed_by(
    one_document: Callable[..., Path], scores: Any
) -> None:
    folder = one_document(scores())
    (folder / ".hidden.json").write_text("{")
    (folder / ".cache").mkdir()
    (folder / ".cache" / "x.json").write_text("{")
    (folder / "small-healed.run" / "checkpoint-64").mkdir(parents=True)
    (folder / "small-healed.run" / "checkpoint-64" / "x.json").write_text("{")
    (folder / "again").symlink_to(folder)
    found = collect(folder)
    assert [one.path for one in found.documents] == ["result.json"]
    assert found.unused == ()


def test_a_damaged_checkpoint_is_named(results: Path, one_document: Callable[..., Path], scores: Any) -> None:
    folder = one_document(scores())
    (folder / "bad").mkdir()
    (folder / "bad" / "config.json").write_text((results / "small" / "config.json").read_text())
    (folder / "bad" / "model.safetensors").write_bytes(b"nothing")
    found = collect(folder)
    assert any(one.path == "bad/config.json" and one.damaged for one in found.unused)


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16"])
def test_a_table_of_series_is_no_damaged_table_of_scores(
    one_document: Callable[..., Path], scores: Any, encoding: str
) -> None:
    folder = one_document(scores())
    (folder / "sales.csv").write_bytes("item_id,timestamp,target\ncafé,2020-01-01,1\n".encode(encoding))
    (one,) = collect(folder).unused
    assert not one.damaged
    assert one.reason.startswith("no table of scores")


def test_the_csv_that_an_evaluation_writes_is_a_table_of_scores(one_document: Callable[..., Path], scores: Any) -> None:
    told = {"max_series": 20, "dtype": "bfloat16", "runtime": "fast", "revision": "v1", "margin": 0.05}
    report = dataclasses.replace(codec.parse(EvalReport, scores()), **told)
    (found,) = collect(one_document(report.to_csv(), "scores.csv")).documents
    assert {name: getattr(found.content, name) for name in told} == told
    names = ("benchmark", "dataset", "model", "MASE", "WQL", "SQL", "coverage", "series", "windows")

    def held(rows: Any) -> set[tuple[Any, ...]]:
        return {tuple(getattr(row, name) for name in names) for row in rows}

    assert held(found.content.rows) == held(report.rows)
    assert (found.content.baseline, found.content.seed) == (report.baseline, report.seed)
    relative = {one.model: one.relative_WQL for one in report.summary if one.benchmark == "all"}
    assert {one.model: one.relative_WQL for one in found.content.summary if one.benchmark == "all"} == pytest.approx(
        relative
    )


@pytest.mark.parametrize("name", ["spectrum", "flow", "embed"])
def test_ranks_at_other_tolerances_than_the_document_names_are_refused(results: Path, name: str) -> None:
    document = json.loads((results / f"{name}.json").read_text())
    with pytest.raises(DataError, match="have ε-ranks at other ε than the document names"):
        KINDS[name].read({**document, "eps": [0.05]})


@pytest.mark.parametrize("field", ["parameters", "bytes"])
@pytest.mark.parametrize("lacking", ["before", "after"])
def test_a_compression_without_a_size_is_refused(results: Path, field: str, lacking: str) -> None:
    document = json.loads((results / "small" / "compress.json").read_text())
    sizes = {key: value for key, value in document[field].items() if key != lacking}
    with pytest.raises(DataError, match=f"it lacks {field} before or after"):
        KINDS["compress"].read({**document, field: sizes})


def test_each_of_many_documents_is_looked_at_once(
    results: Path, one_document: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work counted: comparing every pair of documents, or of documents and outs for every name, grows faster."""
    document = json.loads((results / "small" / "compress.json").read_text())
    for number in range(30):
        folder = one_document({**document, "model": f"m{number}", "out": f"m{number + 1}"}, f"{number:02d}.json")
    seen = {"written out": 0, "compared": 0}
    plain, tail = CompressReport.__repr__, lineage._tail

    def written(report: CompressReport) -> str:
        seen["written out"] += 1
        return plain(report)

    def compared(whole: str, part: str) -> bool:
        seen["compared"] += 1
        return tail(whole, part)

    monkeypatch.setattr(CompressReport, "__repr__", written)
    monkeypatch.setattr(lineage, "_tail", compared)
    library = lineage.Library(collect(folder))
    for name in (f"m{number}" for number in range(31)):
        group = library.group_of(name)
        assert group is not None
        assert len(library.about("compress", group)) == 30
    assert seen["written out"] == 30
    assert seen["compared"] <= 2 * 30 * 31


def test_a_model_is_not_what_was_made_of_it_under_its_own_name(
    results: Path, one_document: Callable[..., Path]
) -> None:
    document = json.loads((results / "small" / "compress.json").read_text())
    library = lineage.Library(collect(one_document({**document, "model": "models/bolt", "out": "bolt"}, "a.json")))
    assert (library.resolve("models/bolt"), library.resolve("bolt")) == ("models/bolt", "bolt")
    assert library.parents["bolt"][0] == "models/bolt"
    (group,) = library.groups
    assert group.members == ("models/bolt", "bolt")
