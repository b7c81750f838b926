"""What a release states in several files, it states once."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from packaging.utils import canonicalize_name

import rankscope

ROOT = Path(__file__).parents[2]


def test_version_and_licence_agree() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    (version,) = re.findall(r'^version = "(.*)"$', project, re.MULTILINE)
    (licence,) = re.findall(r'^license = "(.*)"$', project, re.MULTILINE)
    assert version == rankscope.__version__ == citation["version"]
    assert licence == citation["license"]


def test_the_changelog_has_an_unreleased_part_above_the_releases() -> None:
    heads = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert re.fullmatch(r"\d+\.\d+\.\d+ \(unreleased\)", heads[0])
    coming, last = heads[0].split()[0], heads[1].split()[0]
    assert rankscope.__version__ in {f"{coming}.dev0", last}


def test_the_map_names_places_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    places = re.findall(r"`((?:src|eval|lab|figures|cli|benchmarks|docs|tests)/[^` ]*)`", text)
    library = re.findall(r"^\| (`[a-z`, ]+`) \|", text, re.MULTILINE)
    packages = [name for row in library for name in re.findall(r"`([a-z]+)`", row)]
    assert len(places) > 20
    assert {"plots", "numerics", "series"} <= set(packages)
    missing = [place for place in places if not (ROOT / place).exists() and "DATE" not in place]
    home = ROOT / "src" / "rankscope"
    missing += [name for name in packages if not (home / name).is_dir() and not (home / f"{name}.py").is_file()]
    assert missing == []


def test_the_locked_wheels_are_the_pinned_versions() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", pins, re.MULTILINE))
    versions = {canonicalize_name(name): version for name, version in pinned.items()}
    lines = (ROOT / "requirements-ci.txt").read_text(encoding="utf-8").splitlines()[1:]
    locked = [re.fullmatch(r"([\w.-]+)==(\S+) --hash=sha256:[0-9a-f]{64}", line) for line in lines]
    assert len(locked) > 100
    wrong = [line for line, found in zip(lines, locked, strict=True) if not found]
    wrong += [found[0] for found in locked if found and versions.get(canonicalize_name(found[1])) != found[2]]
    assert wrong == [], "python .ci/lock.py, and what is new in it into constraints.txt"
