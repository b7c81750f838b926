"""The runner of the docs' code blocks: what fails must fail."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest


def page(folder: Path, *blocks: str, name: str = "page.md") -> list[str]:
    folder.joinpath(name).write_text("\n\n".join(blocks), encoding="utf-8")
    return ["--docs", str(folder), "--timeout", "20"]


def fenced(language: str, body: str) -> str:
    return f"```{language}\n{body}\n```"


@pytest.mark.parametrize(
    ("language", "good", "bad"),
    [
        ("console", "$ true", "$ false"),
        ("console", "$ echo a; false || true", "$ true\n$ false | true"),
        ("bash", "x=1\ntest $x = 1", "false\ntrue"),
        ("python", "import sys\nassert sys.argv", "raise SystemExit(3)"),
        ("console", "$ printf 'a\\nb\\n'\na\nb", "$ printf 'a\\nb\\n'\na\nc"),
        ("console", "$ printf 'a\\nb\\n'\n…\nb", "$ printf 'a\\nb\\n'\n…\na"),
        ("console", "$ echo it took 3 s\nit took … s", "$ echo it took 3 h\nit took … s"),
        ("console", "$ echo a \\\n    b\na b", "$ echo a \\\n    b\na"),
    ],
)
def test_a_block_that_fails_fails(runner: ModuleType, tmp_path: Path, language: str, good: str, bad: str) -> None:
    assert runner.main(page(tmp_path, fenced(language, good))) == 0
    assert runner.main(page(tmp_path, fenced(language, bad))) == 1


def test_what_went_wrong_is_printed(runner: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(page(tmp_path, "text", fenced("console", "$ echo 41\n42"))) == 1
    said = capsys.readouterr().out
    assert "page.md:3" in said
    assert "-42" in said
    assert "+41" in said


def test_missing_and_further_lines_are_noticed(runner: ModuleType) -> None:
    assert not runner.matches("a", "a\nb")
    assert not runner.matches("a\nb", "a")
    assert runner.matches("a\n…", "a")
    assert not runner.matches("a.c", "abc")


def test_numbers_may_differ_where_the_page_says_so(runner: ModuleType, tmp_path: Path) -> None:
    shown = fenced("console", "$ echo 'all   13  1.048  0.991–1.126  12,000 MB'\nall  13   1.04  1.000–1.12  12,100 MB")
    assert runner.main(page(tmp_path, shown)) == 1
    assert runner.main(page(tmp_path, "<!-- numbers: 1 % -->", shown)) == 0
    assert runner.main(page(tmp_path, "<!-- numbers: 0.5 % -->", shown)) == 1
    for other in (
        "all 13 1.04 1.000–1.12 12,100",
        "all 13 1.04 1.000–1.12 12,100 kB",
        "all 14 1.04 1.5–1.12 12,100 MB",
    ):
        block = fenced("console", f"$ echo 'all 13 1.048 0.991–1.126 12,000 MB'\n{other}")
        assert runner.main(page(tmp_path, "<!-- numbers: 1 % -->", block)) == 1
    assert runner.main(page(tmp_path, "<!-- numbers: some -->", shown)) == 2


@pytest.mark.parametrize(
    ("shown", "came", "share", "same"),
    [
        ("0.01", "0.02", 1e-9, True),  # one in the last digit
        ("0.01", "0.03", 1e-9, False),
        ("1,000 kB", "1,001 kB", 1e-9, True),
        ("1.02", "1.03", 0, False),
        ("1.50e-07", "1.51e-07", 1e-9, True),
        ("1.50e-07", "1.52e-07", 0.02, True),
        ("1.50e-07", "1.50e-08", 0.02, False),
        ("1e-06", "1e-07", 0.5, False),
        ("layer 1, 13 sets, 95 %, ε 0.1", "layer 1, 13 sets, 95 %, ε 0.1", 0.5, True),
        ("layer 1", "layer 0", 0.5, False),
        ("13 sets", "12 sets", 0.5, False),
        ("ε 0.1", "ε 0.2", 0.5, False),
        ("13 sets", "13.0 sets", 0.5, True),
    ],
)
def test_short_numbers_are_facts_and_long_ones_measurements(
    runner: ModuleType, shown: str, came: str, share: float, same: bool
) -> None:
    assert runner.matches(shown, came, share) is same


def test_the_readme_is_run_with_all_pages_and_not_with_one(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "run_page", lambda steps, timeout: [runner.Outcome(step, 0.0) for step in steps[:1]])
    monkeypatch.setattr(runner, "read_steps", lambda name, text: [runner.Step(name, 1, "bash", text[:40])])
    ran: list[str] = []
    for words in ([], ["index.md"]):
        assert runner.main(words) == 0
        ran.append(capsys.readouterr().out)
    pages = sum(1 for _ in runner.DOCS.rglob("*.md"))
    assert [text.splitlines()[-1].split(";")[0] for text in ran] == [
        f"{pages + 1} ran, 0 failed, 0 left out",
        "1 ran, 0 failed, 0 left out",
    ]


def test_a_block_left_out_needs_a_reason(runner: ModuleType, tmp_path: Path) -> None:
    failing = fenced("bash", "false")
    assert runner.main(page(tmp_path, "<!-- not-run: needs a network -->", failing)) == 0
    assert runner.main(page(tmp_path, "<!-- not-run -->", failing)) == 2
    assert runner.main(page(tmp_path, "<!-- not-run: -->", failing)) == 2
    assert runner.main(page(tmp_path, "<!-- not-run: it is far away -->", "a sentence", failing)) == 2


def test_no_other_name_slips_through(runner: ModuleType, tmp_path: Path) -> None:
    assert runner.main(page(tmp_path, fenced("sh", "true"))) == 2
    assert runner.main(page(tmp_path, fenced("py", "pass"))) == 2
    assert runner.main(page(tmp_path, fenced("{.bash}", "false"))) == 1
    assert runner.main(page(tmp_path, fenced('bash title="a"', "false"))) == 1
    assert runner.main(page(tmp_path, "- item\n\n  ```bash\n  false\n  ```")) == 1


def test_blocks_of_a_page_share_a_folder_and_pages_do_not(runner: ModuleType, tmp_path: Path) -> None:
    first = page(tmp_path, fenced("bash", "echo 1 > a"), fenced("python", "assert open('a').read() == '1\\n'"))
    assert runner.main(first) == 0
    page(tmp_path, fenced("bash", "test ! -e a"), name="z.md")
    assert runner.main([*first, "--jobs", "1"]) == 0


def test_a_text_block_can_be_the_output_of_a_program(runner: ModuleType, tmp_path: Path) -> None:
    program = fenced("python", "print(6 * 7)")
    assert runner.main(page(tmp_path, program, "<!-- output -->", fenced("text", "42"))) == 0
    assert runner.main(page(tmp_path, program, "<!-- output -->", fenced("text", "43"))) == 1
    assert runner.main(page(tmp_path, program, fenced("text", "43"))) == 0
    assert runner.main(page(tmp_path, "<!-- output -->", fenced("text", "42"))) == 2


def test_files_of_the_docs_are_put_beside(runner: ModuleType, tmp_path: Path) -> None:
    assert runner.main(page(tmp_path, "<!-- files: series.csv -->", fenced("console", "$ test -s series.csv"))) == 0
    assert runner.main(page(tmp_path, "<!-- files: none.csv -->", fenced("console", "$ true"))) == 1


def test_a_block_that_hangs_is_ended(runner: ModuleType, tmp_path: Path) -> None:
    words = page(tmp_path, fenced("bash", "sleep 60 & sleep 60"))
    assert runner.main([*words, "--timeout", "0.5"]) == 1


def test_the_pages_can_be_run_as_written(runner: ModuleType) -> None:
    pages = [*runner.DOCS.rglob("*.md"), runner.DOCS.parent / "README.md"]
    steps = [step for page in pages for step in runner.read_steps(page, page.read_text("utf-8"))]
    assert len(steps) > 50
    assert sum(bool(step.not_run) for step in steps) < len(steps) / 3


SHOWN = """name     rank   WQL
────────────────────
enc 0      34  1.02
enc 1      48  1.12
…
co2,2000-01-01,36…
size 0.36 of 8,652,672 in … s"""
CAME = """name    rank    WQL
───────────────────
enc 0      7  0.998
enc 1    109  1.500
enc 2      9  1.600
co2,2000-01-01,415.7
size 0.41 of 9,000 in 3.2 s
"""
NOW = """name    rank    WQL
───────────────────
enc 0      7  0.998
enc 1    109  1.500
…
co2,2000-01-01,41…
size 0.41 of 9,000 in … s"""


def test_output_of_the_same_form_is_written_into_the_page(runner: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "came.txt").write_text(CAME, encoding="utf-8")
    command = f"$ cat {tmp_path}/came.txt"
    words = page(tmp_path, "before", fenced("console", f"{command}\n{SHOWN}\n{command}\nname\n…"), "after")
    before = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert runner.main(words) == 1
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == before
    assert runner.main([*words, "--rewrite"]) == 1  # the second block has another form
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == before.replace(SHOWN, NOW)


def test_numbers_that_are_near_enough_are_rewritten_too(runner: ModuleType, tmp_path: Path) -> None:
    words = page(tmp_path, "<!-- numbers: 2 % -->", fenced("console", "$ echo WQL 1.002\nWQL 0.997"))
    assert runner.main(words) == 0
    assert "WQL 0.997" in (tmp_path / "page.md").read_text(encoding="utf-8")
    assert runner.main([*words, "--rewrite"]) == 0
    assert "\nWQL 1.002\n" in (tmp_path / "page.md").read_text(encoding="utf-8")


def test_a_block_in_a_list_keeps_its_indent(runner: ModuleType, tmp_path: Path) -> None:
    words = page(tmp_path, "- item\n\n  ```console\n  $ echo 123 of 456\n  124 of 456\n  ```")
    assert runner.main([*words, "--rewrite"]) == 0
    assert "\n  $ echo 123 of 456\n  123 of 456\n  ```" in (tmp_path / "page.md").read_text(encoding="utf-8")
    assert runner.main(words) == 0


@pytest.mark.parametrize(
    ("shown", "came", "now"),
    [
        ("rank 34", "ranks 34", None),
        ("rank 34", "rank 34\nmore", None),
        ("layer 1  0.5", "layer 0  0.4\nlayer 1  0.6", None),
        ("…\nlayer 1  0.51", "layer 0  0.41\nlayer 1  0.61", "…\nlayer 1  0.61"),
        ("…\n13 sets", "12 sets\n13 sets", "…\n13 sets"),
        ("took 3 … of 12", "took 4 s of 13", "took 4 … of 13"),
        ("1e-06", "3e-07", "3e-07"),
    ],
)
def test_renewed_output(runner: ModuleType, shown: str, came: str, now: str | None) -> None:
    assert runner.renewed(shown, came) == now
