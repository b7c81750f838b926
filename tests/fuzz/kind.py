"""A kind of input, and what kinds share: a verb run in this process, changes of JSON and of YAML."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import mutators

Files = dict[str, bytes]
"""Content by name."""


@dataclass(frozen=True)
class Kind:
    """One kind of input.

    Attributes:
        seeds: makes valid inputs in an empty folder, each a folder of its own.
        change: a changed copy of the files of a seed.
        use: reads what lies in a folder.
    """

    seeds: Callable[[Path], None]
    change: Callable[[random.Random, Files], Files]
    use: Callable[[Path], object]


def any_json(rng: random.Random, files: Files) -> Files:
    """Change one of the JSON files of a seed."""
    name = rng.choice(sorted(one for one in files if one.endswith(".json")))
    return {**files, name: mutators.json_file(rng, json.loads(files[name]))}


def in_yaml(name: str) -> Callable[[random.Random, Files], Files]:
    """Change a YAML file."""

    def change(rng: random.Random, files: Files) -> Files:
        import yaml

        return {**files, name: mutators.yaml_file(rng, yaml.safe_load(files[name]))}

    return change


def run(*words: str) -> None:
    """Run a verb in this process, to its end or to one line of error.

    Raises:
        DataError: the user can act on what is wrong.
        AssertionError: anything else is.
    """
    from typer.testing import CliRunner

    from rankscope.errors import DataError
    from rankscope_cli.app import app

    done = CliRunner().invoke(app, [*words, "--debug"])
    errors = [line for line in done.output.splitlines() if line.startswith("error")]
    if (done.exit_code, len(errors)) == (2, 1):
        raise DataError(errors[0])
    if done.exit_code:
        raise AssertionError(f"{words[0]} ended with {done.exit_code}: {done.output[-1_000:]}") from done.exception
