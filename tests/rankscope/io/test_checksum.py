"""Checksums of files and folders, whatever their order."""

from __future__ import annotations

import hashlib
from pathlib import Path

from rankscope.io.checksum import checksum, checksums


def test_of_a_file_it_is_sha_256(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(b"x" * (3 << 20))
    assert checksum(file) == hashlib.sha256(b"x" * (3 << 20)).hexdigest()


def test_of_a_folder_it_tells_names_and_contents(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "below").mkdir(parents=True)
    (folder / "a.csv").write_text("1")
    (folder / "below" / "b.csv").write_text("2")
    first = checksum(folder)
    assert checksum(folder) == first
    (folder / "a.csv").rename(folder / "c.csv")
    assert checksum(folder) != first
    (folder / "c.csv").rename(folder / "a.csv")
    (folder / "below" / "b.csv").write_text("3")
    assert checksum(folder) != first
    pairs = {"a": folder / "a.csv", "b": folder}
    assert checksums(pairs.items()) == checksums(reversed(pairs.items())) != checksums([("a", folder / "a.csv")])
