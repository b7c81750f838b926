"""Writes that either happen whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rankscope.errors import OutputError


def refuse_existing(target: Path | str, force: bool) -> None:
    """Raise `OutputError` when ``target`` exists and may not be replaced; call it before long work begins."""
    path = Path(target)
    if path.exists() and not force:
        raise OutputError(
            f"--out {path} exists already: choose another place, or pass --force to replace it."
        )


@contextlib.contextmanager
def atomic_folder(target: Path | str, force: bool = False) -> Iterator[Path]:
    """Yield an empty folder beside ``target`` that becomes ``target`` when the block ends without an error.

    Every file is fsynced before the rename. With ``force`` an existing ``target`` is moved aside first and
    removed only after the new folder has taken its name, so an error at any moment leaves the old folder whole.

    Raises:
        OutputError: the target exists (without ``force``), its parent cannot be written, or the disk is full.
    """
    path = Path(target)
    refuse_existing(path, force)
    work = _beside(path, folder=True)
    try:
        yield work
        _sync_tree(work)
        _swap(work, path)
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}. Nothing there was changed."
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def atomic_file(target: Path | str, force: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside ``target`` that replaces it when the block ends without an error.

    Raises:
        OutputError: the target exists (without ``force``), its parent cannot be written, or the disk is full.
    """
    path = Path(target)
    refuse_existing(path, force)
    work = _beside(path, folder=False)
    try:
        yield work
        _sync(work)
        os.chmod(work, 0o666 & ~_umask())
        os.replace(work, path)
        _sync(path.parent)
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}. Nothing there was changed."
        ) from error
    finally:
        work.unlink(missing_ok=True)


def _beside(path: Path, folder: bool) -> Path:
    """Make a temporary file or folder in the same file system as ``path``, so that a rename is atomic."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if folder:
            made = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent))
            made.chmod(0o777 & ~_umask())
            return made
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        return Path(name)
    except OSError as error:
        raise OutputError(f"cannot write beside {path}: {error.strerror or error}.") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _swap(work: Path, path: Path) -> None:
    old = path.with_name(f".{path.name}.{os.getpid()}.old")
    if path.exists():
        os.replace(path, old)
    try:
        os.replace(work, path)
    except OSError:
        if old.exists():
            os.replace(old, path)
        raise
    _sync(path.parent)
    if old.is_dir() and not old.is_symlink():
        shutil.rmtree(old, ignore_errors=True)
    else:
        old.unlink(missing_ok=True)


def _sync_tree(folder: Path) -> None:
    for root, _, files in os.walk(folder):
        for name in files:
            _sync(Path(root) / name)
        _sync(Path(root))


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
