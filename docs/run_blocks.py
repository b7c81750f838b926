"""Run the code blocks of the docs: exit codes must be 0, and what a page shows as output must be what comes out.

Blocks of ``console``, ``bash`` and ``python`` are run page by page, in the order of the page, in a scratch folder of
the page; every line ``$ …`` of a console block and every other block is a process of its own. A comment right before a
block says more: ``<!-- not-run: REASON -->`` leaves it out, ``<!-- files: a.csv b.csv -->`` puts files of ``docs/data``
into the scratch folder, ``<!-- output -->`` makes a ``text`` block the output of the block before it, and
``<!-- numbers: 2 % -->`` lets numbers of three digits and more differ by so much, or by one in the last digit shown;
shorter ones are counts, layers and tolerances, and the same. In shown output a line
``…`` stands for any lines, ``…`` inside a line for any characters.

    python docs/run_blocks.py            # all pages, and the README
    python docs/run_blocks.py howto/heal.md
    python docs/run_blocks.py --rewrite  # write what came out, also where it is near enough
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from shown import clean, matches, renewed

DOCS = Path(__file__).resolve().parent
README = Path("../README.md")
RUNNABLE = ("console", "bash", "python")
OTHER_NAMES = {"sh": "bash", "shell": "bash", "zsh": "bash", "py": "python", "python3": "python", "pycon": "python"}
WIDTH = 100
_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,}) *\{? *\.?(?P<language>[\w+-]*)")
_COMMENT = re.compile(r"^ *<!-- *(?P<word>not-run|files|output|numbers)\b:? *(?P<rest>.*?) *-->$")


class PageError(Exception):
    """A page cannot be run as it is written."""


@dataclass(frozen=True)
class Step:
    """One process: a command line, a script or a program, and the output that the page shows, if any."""

    page: Path
    line: int
    language: str
    text: str
    shown: str | None = None
    files: tuple[str, ...] = ()
    not_run: str = ""
    share: float = 0.0
    """By how much numbers of the output may differ."""

    @property
    def place(self) -> str:
        """Page and line, as an editor takes them."""
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Outcome:
    """Result of a step: an empty problem is success; later steps of the page may need one that failed."""

    step: Step
    seconds: float
    problem: str = ""
    ended_badly: bool = False
    renewed: str | None = None
    """Output in the form of the shown one, where the two differ and the form can be kept."""


def read_steps(page: Path, text: str) -> list[Step]:
    """Take the steps of a page from its text, in order.

    Raises:
        PageError: a block cannot be run and does not say why, or a comment fits no block.
    """
    steps: list[Step] = []
    for line, language, body, comments in _fences(page, text):
        place = f"{page}:{line}"
        if "output" in comments:
            if not steps or language in RUNNABLE:
                raise PageError(f"{place}: <!-- output --> belongs before a text block that follows a block that runs.")
            steps[-1] = replace(steps[-1], shown=body)
        elif language in RUNNABLE:
            if comments.get("not-run") == "":
                raise PageError(f"{place}: not-run without a reason: write <!-- not-run: needs a network -->.")
            steps += _steps_of(page, line, language, body, comments)
        elif language in OTHER_NAMES:
            raise PageError(f"{place}: call the language {OTHER_NAMES[language]!r}, not {language!r}, so that it runs.")
        elif comments:
            raise PageError(f"{place}: a comment for the runner, before a block of {language or 'no language'}.")
    return steps


def _fences(page: Path, text: str) -> Iterator[tuple[int, str, str, dict[str, str]]]:
    """Yield first line, language, body and comments of every fenced block."""
    lines = text.splitlines()
    comments: dict[str, str] = {}
    at = 0
    while at < len(lines):
        comment, opening = _COMMENT.match(lines[at]), _FENCE.match(lines[at])
        if comment:
            comments[comment["word"]] = comment["rest"]
        elif opening:
            end = at + 1
            while end < len(lines) and lines[end].strip() != opening["fence"]:
                end += 1
            if end == len(lines):
                raise PageError(f"{page}:{at + 1}: a block without an end.")
            indent = len(opening["indent"])
            body = "\n".join(line[indent:] if line[:indent].isspace() else line for line in lines[at + 1 : end])
            yield at + 1, opening["language"], body, comments
            comments, at = {}, end
        elif lines[at].strip() and comments:
            raise PageError(f"{page}:{at + 1}: <!-- {next(iter(comments))} … --> must stand right before a block.")
        at += 1


def _steps_of(page: Path, line: int, language: str, body: str, comments: dict[str, str]) -> list[Step]:
    step = Step(
        page,
        line,
        language,
        body,
        None,
        tuple(comments.get("files", "").split()),
        comments.get("not-run", ""),
        _share(page, line, comments.get("numbers", "0 %")),
    )
    if language != "console" or step.not_run:
        return [step]
    steps: list[Step] = []
    rows = body.splitlines()
    while rows:
        if not rows[0].startswith("$ "):
            raise PageError(f"{page}:{line}: a console block begins with a command, '$ …'.")
        command = [rows.pop(0)[2:]]
        while command[-1].endswith("\\") and rows:
            command.append(rows.pop(0))
        output = []
        while rows and not rows[0].startswith("$ "):
            output.append(rows.pop(0))
        shown = "\n".join(output).strip("\n")
        steps.append(replace(step, text="\n".join(command), shown=shown or None, files=() if steps else step.files))
    return steps


def _share(page: Path, line: int, text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?) *%", text)
    if found is None:
        raise PageError(f"{page}:{line}: <!-- numbers: {text} -->: write a share, such as 2 %.")
    return float(found[1]) / 100


def run_step(step: Step, folder: Path, timeout: float) -> Outcome:
    """Run a step in a folder and compare what comes out with what the page shows."""
    started = time.monotonic()
    try:
        for name in step.files:
            shutil.copy(DOCS / "data" / name, folder)
        code, output = _run_process(step, folder, timeout)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Outcome(step, time.monotonic() - started, f"{error}", True)
    problem, now = "", None
    if code:
        problem = f"exit code {code}:\n{output}"
    elif step.shown is not None:
        now = renewed(step.shown, output)
        if not matches(step.shown, output, step.share):
            lines = difflib.unified_diff(clean(step.shown), clean(output), "shown", "came out", lineterm="", n=1)
            problem = "another output than shown:\n" + "\n".join(lines)
    return Outcome(step, time.monotonic() - started, problem, bool(code), now)


def rewrite(page: Path, outcomes: list[Outcome]) -> list[Outcome]:
    """Write what came out into a page; return the outcomes, those whose problem is solved by it without one."""
    text = page.read_text(encoding="utf-8")
    rows, left = text.split("\n"), []
    for one in outcomes:
        if one.renewed is not None and one.step.shown is not None:
            was = one.step.shown.splitlines()
            at = next(
                at
                for at in range(one.step.line, len(rows))
                if [row.strip() for row in rows[at : at + len(was)]] == [row.strip() for row in was]
            )
            indent = len(rows[at]) - len(rows[at].lstrip()) - (len(was[0]) - len(was[0].lstrip()))
            rows[at : at + len(was)] = [(" " * indent + row).rstrip() for row in one.renewed.splitlines()]
            one = replace(one, problem="")
        left.append(one)
    if "\n".join(rows) != text:
        page.write_text("\n".join(rows), encoding="utf-8")
        print(f"written: {page}")
    return left


def _run_process(step: Step, folder: Path, timeout: float) -> tuple[int, str]:
    shell = [sys.executable, "-c"] if step.language == "python" else ["bash", "-euo", "pipefail", "-c"]
    process = subprocess.Popen(
        [*shell, step.text],
        cwd=folder,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return process.returncode, output


def _environment() -> dict[str, str]:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    # One thread, since pages run side by side and the last digits of sums depend on the number of threads.
    fixed = {"PATH": path, "COLUMNS": str(WIDTH), "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
    return {
        **os.environ,
        **fixed,
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "PYTHONIOENCODING": "utf-8",
    }


def run_page(steps: list[Step], timeout: float) -> list[Outcome]:
    """Run the steps of a page in a folder of its own, up to one that ends with another exit code than 0."""
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="docs-") as folder:
        for step in steps:
            if step.not_run:
                continue
            outcomes.append(run_step(step, Path(folder), timeout))
            _say(outcomes[-1])
            if outcomes[-1].ended_badly:
                break
    return outcomes


def _say(outcome: Outcome) -> None:
    step = outcome.step
    first = next((line for line in step.text.splitlines() if line.strip()), "")
    mark = "FAIL" if outcome.problem else "ok  "
    text = f"{mark} {outcome.seconds:6.1f} s  {step.place}  {first[:90]}"
    if outcome.problem:
        text += "\n" + "\n".join(f"     {line}" for line in outcome.problem.splitlines())
    print(text, flush=True)


def main(words: list[str] | None = None) -> int:
    """Run the pages that are named, or all; return 0, 1 if a block failed, 2 if a page cannot be run as written."""
    parser = argparse.ArgumentParser(description="Run the code blocks of the docs.")
    parser.add_argument("pages", nargs="*", type=Path, help="pages, from docs/; all by default")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of the pages")
    parser.add_argument("--rewrite", action="store_true", help="write what came out into the pages")
    parser.add_argument("--jobs", type=int, default=2, help="pages at a time (default 2)")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for a block (default 300)")
    given = parser.parse_args(words)
    started = time.monotonic()
    try:
        names = given.pages or sorted(page.relative_to(given.docs) for page in given.docs.rglob("*.md"))
        if not given.pages and given.docs == DOCS:
            names.append(README)
        pages = [read_steps(name, (given.docs / name).read_text(encoding="utf-8")) for name in names]
    except (PageError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    with ThreadPoolExecutor(given.jobs) as pool:
        ran = list(pool.map(lambda page: run_page(page, given.timeout), pages))
    if given.rewrite:
        ran = [rewrite(given.docs / name, page) for name, page in zip(names, ran, strict=True)]
    outcomes = [one for page in ran for one in page]
    left = [step for page in pages for step in page if step.not_run]
    for step in left:
        print(f"left out: {step.place}: {step.not_run}")
    failed = sum(bool(one.problem) for one in outcomes)
    print(f"{len(outcomes)} ran, {failed} failed, {len(left)} left out; {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
