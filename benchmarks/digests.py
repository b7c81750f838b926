"""Digests of what a result was measured with: code without its comments, docstrings and errors, weights, settings.

Computed from the files alone, so that a fresh clone knows what is stale without a run and without git.
"""

from __future__ import annotations

import ast
import hashlib
import io
import tokenize
from functools import lru_cache
from pathlib import Path

SUFFIXES = (".py", ".cpp", ".json", ".yaml", ".safetensors")
"""Files that a number can depend on; a model's card quotes numbers and is none of them."""
LENGTH = 12
SCORING = (
    *(f"eval/rankscope_eval/{name}.py" for name in ("forecasters", "metrics", "relative", "scorer", "sources")),
    *(f"eval/rankscope_eval/{name}" for name in ("baselines.py", "embedded.py", "suites")),
    *(f"src/rankscope/{name}" for name in ("forecast", "lowrank")),
)
"""Code that WQL and MASE of a checkpoint depend on."""
SERIES = ("components", "groups", "kernels", "kernelsynth", "mixture", "pool", "structured")
COMPRESSION = (
    *(f"src/rankscope/{name}" for name in ("compress", "numerics")),
    *(f"src/rankscope/train/data/{name}.py" for name in SERIES),
)
"""Code that a compressed checkpoint depends on, that of generated series among it."""
HEALING = (
    "src/rankscope/compress/heal",
    *(f"src/rankscope/train/{name}" for name in ("passes.py", "sublayers.py", "loop.py", "stream.py", "teaching.py")),
)
"""Code that a healed one depends on besides."""
APART = {"__pycache__", "bundled", "heal", "shard_writer.py", "run_folder.py", "sweeps"}
"""Folders and files that do not count in the digest of a folder that they are in: named apart, or, as what stores
generated series and snapshots and what runs trainings one after the other, nothing that a number depends on."""
SEARCHES = {f"compress/{name}.py" for name in ("to_loss", "to_time", "report", "card", "recipe")}
"""The same of one folder alone: searches by scores, which no benchmark runs; what compressions say of themselves."""


def bundled(*names: str) -> tuple[str, ...]:
    """Folders of bundled models, from the root of the repository."""
    return tuple(f"src/rankscope/bundled/{name}" for name in names)


@lru_cache
def digest(path: Path) -> str:
    """Digest of a file or folder, without what is `APART` or one of the `SEARCHES`.

    Args:
        path: a file, or a folder whose files count by name and content.

    Raises:
        FileNotFoundError: there is nothing at the path.
    """
    if path.is_file():
        return _sha(_content(path))
    files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and _counts(file, path))
    if not files:
        raise FileNotFoundError(f"{path}: no such file, or a folder without one that counts.")
    return _sha("".join(f"{file.relative_to(path).as_posix()} {digest(file)}\n" for file in files).encode())


def _counts(file: Path, folder: Path) -> bool:
    return not APART & set(file.relative_to(folder).parts) and "/".join(file.parts[-2:]) not in SEARCHES


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:LENGTH]


def _content(file: Path) -> bytes:
    content = file.read_bytes()
    return statements(content.decode("utf-8")).encode() if file.suffix == ".py" else content


def statements(source: str) -> str:
    r"""Python code without comments, docstrings, blank lines and what is raised: rewording makes no number stale.

    >>> statements('\"\"\"Words.\"\"\"\n\nx = 1  # a word\nraise ValueError(\n    "x"\n)\n')
    'x = 1\nraise'
    """
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)
        elif isinstance(node, ast.Raise):
            rest = [""] * ((node.end_lineno or node.lineno) - node.lineno)
            lines[node.lineno - 1 : node.end_lineno] = [" " * node.col_offset + "raise", *rest]
    return "\n".join(line.rstrip() for line in lines if line.strip())
