"""The registry: every printed number is the measured one, every result is registered, what is stale is named."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
OTHER_FORMS = {"by-design-sweep"}
"""Written by `rankscope sweep`, for the page of results."""


@pytest.fixture(scope="module")
def evidence(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("evidence")


@pytest.fixture(scope="module")
def records(evidence: ModuleType) -> ModuleType:
    return importlib.import_module("claims.records")


def test_printed_numbers_are_the_measured_ones(evidence: ModuleType) -> None:
    assert list(evidence.problems()) == [], "python benchmarks/evidence.py --rewrite writes them"


UNMEASURED = re.compile(
    r"```.*?^```|`[^`\n]*`|<!--.*?-->|\]\([^)]*\)|\$\$.*?\$\$|\$[^$\n]*\$", re.DOTALL | re.MULTILINE
)
"""Code, comments, links and formulas: run by docs/run_blocks.py, or no measurement."""
EPS = ["ε = 0.1", "ε = 0.01", "ε ≥ 0.05"]
CARD = ["apache-2.0", "AdamW (0.9", "0.98)", "torch 2.11", "T5 v1.0", "timesfm-2.0", "TimesFM 2.5", "timesfm-2.5"]
CARD += ["bior2.2", "decay 0.95", "+ 0.25 × commitment"]
SETTINGS: dict[str, list[str]] = {
    "docs/howto/choosing.md": ["`joint+stream` at 0.", "attention at 0.", "heads at 0.15"],
    "docs/howto/int8.md": ["--attention-ratio 0.25`, in int8"],
    "docs/howto/text.md": ["T5 to 0.15", "by 2.5."],
    "docs/index.md": ["Python 3.10"],
    "docs/runtime.md": ["keep 0.15 of"],
    "docs/tutorial/first-steps.md": ["1.02 is 2 %"],
    "docs/lab/encoders.md": ["arXiv 2606.04752"],
    "README.md": ["TimesFM 2.5", "Apache-2.0"],
    "docs/benchmarks.md": [
        "At 0.075 `joint`",
        "for `joint` at 0.15 and",
        "% at 0.075,",
        "0.1-rank",
        "at 0.1 of the",
    ],
    "docs/reference/schemas.md": ["to 0.01…100"],
    "docs/reference/scores.md": [
        "0.8 is calibrated",
        "of 1.32 and more",
        "× 1.1 for 20, ",
        "1.35 for seven, ",
        "2.7 for three",
        "than 7.5 %",
    ],
    "docs/figures.md": [
        "(8.5 cm)",
        "0.1-rank",
        *EPS,
        "size of 0.5",
        "at 0.25 (",
        "`joint` at 0.15 multiplies",
        "1.009 at 0.393 and 1.053 at 0.237",
    ],
    "docs/howto/published.md": ["within 0.5 %", "and 2.6 % on"],
    "docs/reference/agreement.md": ["ε = 0.1"],
    "docs/lab/components.md": ["at 0.99 of it", "at 1.01 it blows up"],
    "docs/theory/bounds.md": ["factor of 2.1"],
}
"""Ratios and tolerances that were asked for, names, versions and published numbers, by page; every other decimal number
there has to be registered."""


CARDS = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "src/rankscope/bundled").glob("*/README.md"))
PAGES = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", ["README.md", *PAGES, *CARDS])
def test_every_decimal_number_of_a_page_comes_from_a_result(evidence: ModuleType, page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    known = [found.span() for found in UNMEASURED.finditer(text)]
    allowed = CARD if page in CARDS else SETTINGS.get(page, [])
    known += [found.span() for words in allowed for found in re.finditer(re.escape(words), text)]
    for claim in evidence.CLAIMS:
        if claim.page == page:
            known += [(one.start, one.end) for one in evidence.pieces(claim, text)]
    assert [words for words in SETTINGS.get(page, []) if words not in text] == [], "no longer on the page"
    numbers = list(re.finditer(r"\d[\d,]*\.\d+", text))
    free = [one for one in numbers if not any(start <= one.start() < end for start, end in known)]
    assert [text[max(0, one.start() - 30) : one.end() + 10] for one in free] == []


def test_every_result_is_registered(evidence: ModuleType) -> None:
    files = {file.stem for file in (BENCHMARKS / "results").glob("*.json")} - OTHER_FORMS
    assert files - set(evidence.RESULTS) == set(), "add a Result in benchmarks/claims/: see CONTRIBUTING.md"


def test_every_result_is_printed_somewhere(evidence: ModuleType) -> None:
    assert set(evidence.RESULTS) == {name for claim in evidence.CLAIMS for name in claim.results}


def test_every_claim_and_command_names_what_is_there(evidence: ModuleType) -> None:
    for result in evidence.RESULTS.values():
        first, *rest = result.command.removeprefix("python ").split()
        place = f"{rest[0].replace('.', '/')}/__main__.py" if first == "-m" else first
        assert (ROOT / place).is_file() or (result.by_hand and first == "rankscope"), result
    for claim in evidence.CLAIMS:
        assert set(claim.results) <= set(evidence.RESULTS), claim.place
        assert (ROOT / claim.page).is_file(), claim.place


def test_a_fresh_clone_lists_numbers_and_checks_in_seconds() -> None:
    listed = subprocess.run(
        [sys.executable, BENCHMARKS / "evidence.py", "--list"], capture_output=True, text=True, cwd=BENCHMARKS
    )
    assert listed.returncode == 0, listed.stderr
    for line in listed.stdout.splitlines():
        shown, place, rest = line.partition(" ← ")
        assert ":" in shown, place
        assert re.search(r"\.(json|csv|parquet) ← (python (benchmarks/|-m tests\.)|rankscope \w)", rest), rest


@pytest.fixture
def measured(records: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A repository with code, weights, and a result that was measured with them."""
    provenance = importlib.import_module("provenance")
    for module in (records, provenance):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(provenance, "commit", lambda *used: "0" * 40)
    monkeypatch.setattr(sys, "argv", ["x.py", "--data", "/far/away", "--out", "benchmarks/results/x.json"])
    model = tmp_path / "src" / "rankscope" / "bundled" / "m"
    for file, text in {
        "benchmarks/x.py": '"""Words."""\nx = 1\n',
        "src/rankscope/code.py": "def f():\n    '''Words.'''\n    return 1  # one\n",
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    model.mkdir(parents=True)
    (model / "model.safetensors").write_bytes(b"weights")
    (model / "README.md").write_text("a card", encoding="utf-8")
    digests = importlib.import_module("digests")
    digests.digest.cache_clear()
    found = provenance.origin("x", "src/rankscope", *digests.bundled("m"))
    provenance.save({**found, "rows": [{"time": 1.2345}]}, tmp_path / "benchmarks/results/x.json")
    digests.digest.cache_clear()
    return tmp_path


def result_of(records: ModuleType) -> Any:
    return records.Result("x", "benchmarks/x.py --data {six}", minutes=1)


def test_a_result_is_fresh_until_what_it_used_changes(records: ModuleType, measured: Path) -> None:
    result = result_of(records)
    assert result.stale() == ""
    assert replace(result, command="benchmarks/x.py --rounds 9").stale() == "measured by another command"
    assert replace(result, name="y").stale() == "never measured"


def test_a_result_of_which_a_part_is_missing_is_not_finished(records: ModuleType, measured: Path) -> None:
    file = measured / "benchmarks/results/x.json"
    for missing, said in ((2, "not finished: 2 still to be measured"), (0, "")):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"missing": missing}), encoding="utf-8")
        assert result_of(records).stale() == said


@pytest.mark.parametrize(
    ("file", "content", "stale"),
    [
        ("src/rankscope/code.py", "def f():\n    return 1\n", ""),
        ("src/rankscope/code.py", "def f():\n    return 2\n", "changed since: src/rankscope"),
        ("src/rankscope/more.py", "x = 1\n", "changed since: src/rankscope"),
        ("benchmarks/x.py", "x = 2\n", "changed since: benchmarks/x.py"),
        ("src/rankscope/bundled/m/model.safetensors", "others", "changed since: src/rankscope/bundled/m"),
        ("src/rankscope/bundled/m/README.md", "another card", ""),
    ],
)
def test_what_makes_a_result_stale(records: ModuleType, measured: Path, file: str, content: str, stale: str) -> None:
    (measured / file).write_text(content, encoding="utf-8")
    assert result_of(records).stale() == stale


def test_stale_results_on_the_test_sets_are_measured_on_request_alone(
    evidence: ModuleType, records: ModuleType, measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = importlib.import_module("claims")
    some = {
        name: records.Result(name, f"benchmarks/{name}.py {{{suite}}}", minutes=1)
        for name, suite in {"scored": "six", "chosen": "dev"}.items()
    }
    for module in (claims, evidence):
        monkeypatch.setattr(module, "RESULTS", some)
    assert list(evidence.stale()) == ["scored", "chosen"]
    assert evidence.wanted() == ["chosen"]
    again, kept = claims.stale_note().split("\n\n")
    assert (again.splitlines()[1:], kept.splitlines()[1:]) == (["`chosen`."], ["`scored`."])


def test_changes_without_commit_and_results_without_digests_are_stale(records: ModuleType, measured: Path) -> None:
    file = measured / "benchmarks" / "results" / "x.json"
    found = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**found, "commit": found["commit"] + "+changes"}), encoding="utf-8")
    assert "not committed" in result_of(records).stale()
    del found["used"]
    file.write_text(json.dumps(found), encoding="utf-8")
    assert "does not say" in result_of(records).stale()


PAGE = """It takes 1.00
seconds, of which
10 % are lost on m4_hourly (worst).

<!-- evidence: table -->

| 1.00 |

<!-- /evidence -->
"""


@pytest.fixture
def page(evidence: ModuleType, records: ModuleType, measured: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page of two claims on the result."""
    prose = records.Prose(
        "page.md", "x", "It takes {rows[0][time]:.2f} seconds", holds=lambda found: found["rows"][0]["time"] < 2
    )
    block = records.Block("page.md", "table", ("x",), lambda found: f"| {found['rows'][0]['time']:.2f} |")
    monkeypatch.setattr(evidence, "ROOT", measured)
    monkeypatch.setattr(evidence, "RESULTS", {"x": result_of(records)})
    monkeypatch.setattr(evidence, "CLAIMS", (prose, block))
    (measured / "page.md").write_text(PAGE, encoding="utf-8")
    return measured / "page.md"


def wrong(evidence: ModuleType) -> list[str]:
    return list(evidence.problems(evidence.CLAIMS))


def test_a_wrong_number_is_named_with_its_line_and_rewritten(evidence: ModuleType, page: Path) -> None:
    found = wrong(evidence)
    assert [one.split(" prints")[0] for one in found] == ["page.md:1", "page.md:7"]
    assert "'1.00'; benchmarks/results/x.json says '1.23'" in found[0]
    notes = evidence.rewrite()
    assert wrong(evidence) == []
    assert page.read_text(encoding="utf-8") == PAGE.replace("1.00", "1.23")
    assert [note.split(":", 2)[2] for note in notes] == [" 1.00 → 1.23: read the words around it."] * 2
    assert evidence.rewrite() == []


def test_words_that_are_gone_or_no_longer_hold_are_named(evidence: ModuleType, page: Path, measured: Path) -> None:
    page.write_text(PAGE.replace("It takes", "They take").replace("evidence: table", "evidence: chair"), "utf-8")
    assert [one.split(" is ")[1] for one in wrong(evidence)] == ["0 times on the page, and must be once."] * 2
    page.write_text(PAGE, encoding="utf-8")
    file = measured / "benchmarks" / "results" / "x.json"
    file.write_text(file.read_text(encoding="utf-8").replace("1.2345", "2.5"), encoding="utf-8")
    assert "no longer shows" in wrong(evidence)[0]


def test_small_moves_need_nobody(evidence: ModuleType, page: Path) -> None:
    page.write_text(PAGE.replace("1.00", "1.22"), encoding="utf-8")
    assert len(wrong(evidence)) == 2
    assert evidence.rewrite() == []


def test_names_and_numbers_stand_in_one_sentence(records: ModuleType) -> None:
    claim = records.Prose("p", "x", "of which {share:.0f} % are lost on {worst!s} (worst)")
    found = list(claim.printed(PAGE, {"x": {"share": 12.4, "worst": "nn5"}}))
    assert [(one.shown, one.measured) for one in found] == [("10", "12"), ("m4_hourly", "nn5")]
    assert all(PAGE[one.start : one.end] == one.shown for one in found)


def test_an_empty_block_ends_with_its_own_mark(records: ModuleType) -> None:
    block = records.Block("page.md", "new", (), lambda: "| 1 |")
    text = (
        "<!-- evidence: new -->\n\n<!-- /evidence -->\n\nwords\n\n<!-- evidence: old -->\n| 2 |\n<!-- /evidence -->\n"
    )
    (piece,) = block.printed(text, {})
    assert (piece.shown, piece.measured) == ("", "| 1 |")
    made = text[: piece.start] + piece.measured + text[piece.end :]
    assert made == text.replace("new -->\n\n", "new -->\n| 1 |\n", 1)


def test_files_of_a_folder_are_kept_as_they_are(evidence: ModuleType, records: ModuleType, measured: Path) -> None:
    line = "rankscope sweep width --out DIR"
    kept = records.Result("w", line, minutes=1, older=True, path="loss.csv", by_hand=True)
    (measured / "loss.csv").write_text("step,loss\n2,8.5\n26,7\n", encoding="utf-8")
    assert kept.read() == {"rows": [{"step": 2.0, "loss": 8.5}, {"step": 26.0, "loss": 7.0}]}
    assert (kept.words(), kept.stale()) == (line, "")
    (note,) = evidence.run(kept, "", "")
    assert f"run `{line}` and put its file at loss.csv" in note


@pytest.mark.parametrize("there", [True, False])
def test_a_result_is_not_kept_if_the_code_changed_meanwhile(
    evidence: ModuleType, measured: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    monkeypatch.setattr(evidence, "ROOT", measured)
    for folder in ("src", "eval", "lab"):
        (measured / folder / "code.py").parent.mkdir(exist_ok=True)
        (measured / folder / "code.py").write_text("x = 1\n", encoding="utf-8")
    changes = "pathlib.Path('eval/code.py').write_text('x = 2')"
    script = f"import pathlib, sys\npathlib.Path(sys.argv[-1]).write_text('{{}}')\n{changes}\n"
    (measured / "benchmarks" / "x.py").write_text(script, encoding="utf-8")
    file = measured / "benchmarks" / "results" / "x.json"
    before = file.read_bytes()
    if not there:
        file.unlink()
    result = importlib.import_module("claims").Result("x", "benchmarks/x.py", minutes=1)
    assert evidence.run(result, "", "") == ["x: the code changed while it was measured; not kept."]
    assert file.exists() is there
    assert not there or file.read_bytes() == before
    assert evidence.run(result, "", "") == ["x: does not say which code and models it was measured with"]
    beside = importlib.import_module("claims").Result("x", "benchmarks/x.py", minutes=1, path="eval/data/x.json")
    (measured / "eval" / "data").mkdir()
    assert evidence.run(beside, "", "") == ["x: does not say which code and models it was measured with"]
