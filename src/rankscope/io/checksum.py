"""SHA-256 of files and of folders of files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path


def checksum(path: Path) -> str:
    """Return the SHA-256 in hexadecimal of a file, read piece by piece, or of the files of a folder by their names."""
    if path.is_dir():
        return checksums({str(file.relative_to(path)): file for file in path.rglob("*") if file.is_file()}.items())
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def checksums(named: Iterable[tuple[str, Path]]) -> str:
    """Return one SHA-256 in hexadecimal of several files and folders, whatever their order."""
    lines = sorted(f"{name} {checksum(path)}" for name, path in named)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
