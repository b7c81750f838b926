"""What a user installs with rankscope has permissive licences."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
ALLOWED = {
    "0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "CNRI-Python", "ISC", "MIT",
    "MIT-CMU", "MPL-2.0", "PSF-2.0", "Python-2.0", "Unlicense", "Zlib",
}  # fmt: skip
"""SPDX names; MPL-2.0 (certifi, tqdm) asks for the source of changed files only."""
SAID = {
    "Apache": "Apache-2.0", "Apache Software License": "Apache-2.0", "Apache Software License 2.0": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0", "BSD License": "BSD", "BSD 3-Clause License": "BSD-3-Clause",
    "2-clause BSD": "BSD-2-Clause", "ISC License": "ISC", "ISC License (ISCL)": "ISC", "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0", "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}  # fmt: skip
"""Other words for them in metadata."""
PRIVATE = ("nvidia-", "cuda-")
"""Parts of torch's wheels for GPUs, which are under NVIDIA's own terms."""


def runtime() -> dict[str, metadata.Distribution]:
    """Installed distributions that rankscope needs to run, and those that they need."""
    (listed,) = re.findall(
        r"^dependencies = \[$(.*?)^\]$", PROJECT.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    waiting = [Requirement(line) for line in re.findall(r'"(.+?)"', listed)]
    found: dict[str, metadata.Distribution] = {}
    while waiting:
        name = canonicalize_name(waiting.pop().name)
        if name in found or name.startswith(PRIVATE):
            continue
        found[name] = metadata.distribution(name)
        needed = [Requirement(line) for line in found[name].requires or ()]
        waiting += [one for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


def licences(about: metadata.PackageMetadata) -> set[str]:
    """Names of the licences: of the SPDX expression, the classifiers, or a licence field of one line."""
    expression = about.get("License-Expression")
    if not expression:
        prefix = "License :: "
        classed = [one for one in about.get_all("Classifier") or () if one.startswith(prefix)]
        if classed:
            return {one.rpartition(" :: ")[2] for one in classed}
        expression = about.get("License") or ""
        if expression in SAID or "\n" in expression:
            return {expression[:60]}
    return {re.sub(r" WITH .*", "", one.strip("() ")) for one in re.split(r" (?:AND|OR) ", expression)}


def unknown(about: metadata.PackageMetadata) -> set[str]:
    """Licences of a distribution that are not among the allowed ones."""
    return {name for name in licences(about) if SAID.get(name, name) not in ALLOWED}


def test_runtime_dependencies_are_permissive() -> None:
    found = runtime()
    assert {"torch", "numpy", "markupsafe"} <= set(found)
    refused = {name: wrong for name, one in found.items() if (wrong := unknown(one.metadata))}
    assert refused == {}


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("License-Expression", "MIT AND (Apache-2.0 WITH LLVM-exception OR BSD-3-Clause)", True),
        ("License-Expression", "MIT AND GPL-3.0-only", False),
        ("License", "Apache 2.0 License", True),
        ("License", "AGPL-3.0", False),
        ("License", "", False),
        ("Classifier", "License :: OSI Approved :: MIT License", True),
        ("Classifier", "License :: OSI Approved :: GNU General Public License v3 (GPLv3)", False),
    ],
)
def test_every_way_to_name_a_licence_is_read(field: str, value: str, allowed: bool) -> None:
    from email.message import Message

    about = Message()
    about[field] = value
    assert (not unknown(about)) == allowed  # type: ignore[arg-type]
