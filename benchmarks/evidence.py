"""Measure what is stale, and write the numbers into the pages that print them.

A result is stale if its command, or a file that it names under ``used``, is no longer what it was measured with. What
was measured is kept at once, so that the same command goes on where it was stopped. Scores are measured with one
thread, as another number rounds differently; times with as many as the machine has. Results on the test sets are
measured by name alone.

    python benchmarks/evidence.py                       # measure what is stale, write pages and blocks of the docs
    python benchmarks/evidence.py --list                # number → page → result file → command
    python benchmarks/evidence.py --check               # stale results, and printed numbers that were not measured
    python benchmarks/evidence.py --rewrite             # the pages from the results that are there
    python benchmarks/evidence.py scores-bundled spectrum --minutes 20
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from claims import CLAIMS, RESULTS, Block, Claim, ClaimError, Result
from claims.records import NUMBER, Printed
from digests import SUFFIXES, digest

ROOT = Path(__file__).resolve().parents[1]
DATA = "../shared/data"
WIDTH = 120
RUNNER = ROOT / "docs" / "run_blocks.py"
CODE = ("src", "eval", "lab", "figures", "cli", "benchmarks")


def stale() -> dict[str, str]:
    """Names of the results that have to be measured again, with the reason."""
    return {name: why for name, result in RESULTS.items() if (why := result.stale())}


def wanted() -> list[str]:
    """Names of the stale results that are measured without being asked for: none that reads the test sets."""
    return [name for name in stale() if not RESULTS[name].reads_test_sets]


def pieces(claim: Claim, text: str) -> list[Printed]:
    """Pieces of a page that a claim prints; none where a result was never measured."""
    if not all((ROOT / RESULTS[name].file).is_file() for name in claim.results):
        return []
    try:
        return list(claim.printed(text, {name: RESULTS[name].read() for name in claim.results}))
    except (LookupError, TypeError, ValueError) as error:
        raise ClaimError(f"{claim.place}: {files(claim)} has no such value ({error!r}).") from error


def problems(claims: Sequence[Claim] = CLAIMS) -> Iterator[str]:
    """One line for every printed number that is not what was measured, and for every claim that is not on its page."""
    for claim in claims:
        text = (ROOT / claim.page).read_text(encoding="utf-8")
        try:
            found = pieces(claim, text)
        except ClaimError as error:
            yield str(error)
            continue
        for one in found:
            if one.shown != one.measured:
                line, shown, measured = first_difference(text, one)
                source = files(claim) or "the registry"
                yield f"{claim.page}:{line} prints {shown[:WIDTH]!r}; {source} says {measured[:WIDTH]!r}"


def first_difference(text: str, piece: Printed) -> tuple[int, str, str]:
    """Line of the page, and what is shown and measured there, where a piece first differs."""
    line = text.count("\n", 0, piece.start) + 1
    rows = zip_longest(piece.shown.splitlines(), piece.measured.splitlines(), fillvalue="")
    return next((line + number, *row) for number, row in enumerate(rows) if row[0] != row[1])


def files(claim: Claim) -> str:
    """Result files of a claim, for messages."""
    return ", ".join(RESULTS[name].file for name in claim.results)


def rewrite() -> list[str]:
    """Write all measured numbers into the pages; return what a person has to look at."""
    notes = []
    for page in dict.fromkeys(claim.page for claim in CLAIMS):
        path = ROOT / page
        text = before = path.read_text(encoding="utf-8")
        for claim in (one for one in CLAIMS if one.page == page):
            if isinstance(claim, Block) and claim.append and claim.mark not in text:
                text += f"\n{claim.mark}\n\n<!-- /evidence -->\n"
            try:
                found = pieces(claim, text)
            except ClaimError as error:
                notes.append(str(error))
                continue
            notes += [note for one in found for note in moved(claim, text, one)]
            for one in reversed(found):
                text = text[: one.start] + one.measured + text[one.end :]
        if text != before:
            path.write_text(text, encoding="utf-8")
            print(f"written: {page}")
    return notes


def moved(claim: Claim, text: str, piece: Printed) -> Iterator[str]:
    """One line for a piece of which a number moved by more than it may."""
    pairs = list(zip(NUMBER.findall(piece.shown), NUMBER.findall(piece.measured), strict=False))
    far = [(was, now) for was, now in pairs if abs(number(now) - number(was)) > claim.moves * abs(number(was))]
    if far:
        line = text.count("\n", 0, piece.start) + 1
        shown = ", ".join(f"{was} → {now}" for was, now in far[:4]) + (f" and {len(far) - 4} more" if far[4:] else "")
        yield f"{claim.page}:{line}: {shown}: read the words around it."


def number(text: str) -> float:
    """Value of a printed number."""
    return float(text.replace(",", "").replace("−", "-"))


def measure(names: Sequence[str], options: argparse.Namespace) -> list[str]:
    """Run the commands of results one after the other; return what went wrong, and what was left for another time."""
    begun, notes = time.monotonic(), []
    for at, name in enumerate(names, 1):
        result = RESULTS[name]
        spent = (time.monotonic() - begun) / 60
        if spent + result.minutes > options.minutes:
            notes.append(f"{name}: left for later, since it takes about {result.minutes:.0f} minutes.")
            continue
        left = sum(RESULTS[one].minutes for one in names[at - 1 :])
        print(f"[{at}/{len(names)}] {name}, about {result.minutes:.0f} min, {left:.0f} min left", flush=True)
        notes += run(result, options.data, options.alone)
    return notes


def run(result: Result, data: str, alone: str) -> list[str]:
    """Measure one result."""
    if result.by_hand:
        return [f"{result.name}: run `{result.command}` and put its file at {result.file}."]
    if "--data" in result.command and not (ROOT / data).is_dir():
        return [f"{result.name}: {data} is not a folder; give that of the folders benchmark and dev by --data DIR."]
    words = [sys.executable, *shlex.split(result.words(data))[1:]]
    prefix, threads = (shlex.split(alone), {}) if result.timed else ([], {"OMP_NUM_THREADS": "1"})
    file = ROOT / result.file
    code = code_digest(file)
    earlier = file.read_bytes() if file.is_file() else None
    failed = subprocess.run([*prefix, *words], cwd=ROOT, env={**os.environ, **threads}).returncode
    if code_digest(file) == code:
        reason = f"exit code {failed}" if failed else result.stale()
        return [f"{result.name}: {reason}"] if reason else []
    if earlier is None:
        file.unlink(missing_ok=True)
    else:
        file.write_bytes(earlier)
    return [f"{result.name}: the code changed while it was measured; not kept."]


def code_digest(written: Path) -> list[str]:
    """Digests of all code, settings and weights that a measurement may read while it runs, beside what it writes."""
    digest.cache_clear()
    files = (file for folder in CODE for file in (ROOT / folder).rglob("*") if file.suffix in SUFFIXES)
    read = (file for file in files if not {"results", "__pycache__"} & set(file.parts) and file != written)
    return sorted(map(digest, read))


def listing() -> Iterator[str]:
    """One line per printed number or block: number, page and line, result file, command."""
    for claim in (one for one in CLAIMS if one.results):
        text = (ROOT / claim.page).read_text(encoding="utf-8")
        commands = "; ".join(RESULTS[name].words() for name in claim.results)
        for one in pieces(claim, text):
            line = text.count("\n", 0, one.start) + 1
            shown = f"{len(NUMBER.findall(one.shown))} numbers" if isinstance(claim, Block) else one.shown
            yield f"{shown:12} {claim.page}:{line} ← {files(claim)} ← {commands}"


def check() -> int:
    """Print what is stale and what is printed wrongly; 1 if there is any of the latter."""
    for name, why in stale().items():
        print(f"{'kept' if RESULTS[name].reads_test_sets else 'stale'}: {name}: {why}")
    wrong = list(problems())
    print("\n".join(wrong) if wrong else "All printed numbers are the measured ones.")
    return 1 if wrong else 0


def main(given: list[str] | None = None) -> int:
    """Do what the options say; return 1 if something is left to do for a person."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="RESULT", help="only these, stale or not; all stale ones but those on the test sets"
    )
    parser.add_argument("--list", action="store_true", help="print where every number comes from")
    parser.add_argument("--check", action="store_true", help="print what is stale, and numbers that were not measured")
    parser.add_argument("--rewrite", action="store_true", help="write the pages without measuring")
    parser.add_argument(
        "--data", default=DATA, help="folder of the data sets, benchmark/ and dev/ (default: %(default)s)"
    )
    parser.add_argument("--alone", default="", metavar="COMMAND", help="put before commands that time")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing that would take longer")
    options = parser.parse_args(given)
    unknown = set(options.names) - set(RESULTS)
    if unknown:
        parser.error(f"no result {', '.join(sorted(unknown))}; there are {', '.join(RESULTS)}.")
    if options.list:
        print("\n".join(listing()))
        return 0
    if options.check:
        return check()
    notes = [] if options.rewrite else measure(options.names or wanted(), options)
    notes += rewrite()
    if not options.names and not options.rewrite and subprocess.run([sys.executable, RUNNER, "--rewrite"]).returncode:
        notes.append("blocks of the docs: see above.")
    for note in notes:
        print(f"look: {note}")
    return 1 if notes else 0


if __name__ == "__main__":
    sys.exit(main())
