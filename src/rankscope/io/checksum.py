"""SHA-256 of files."""

from __future__ import annotations

import hashlib
from pathlib import Path


def checksum(file: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal, read piece by piece."""
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
