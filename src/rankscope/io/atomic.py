"""Writes that either happen whole or not at all."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rankscope.errors import OutputError

REPLACEABLE = ("config.json", "shards.index.json")
"""A folder that holds one of these is a checkpoint or a set of shards: it may be replaced by force, as an empty one."""


def refuse_existing(target: Path | str, force: bool) -> None:
    """Raise `OutputError` when ``target`` may not be written or replaced; call it before long work begins.

    By ``force`` files are replaced, and folders that are empty or hold what rankscope writes in folders: checkpoints
    and shards. The working folder, its parents and the home folder never are.
    """
    _refuse(Path(target), force)
    refuse_unwritable(target)


def refuse_workplace(target: Path | str) -> None:
    """Raise `OutputError` when ``target`` is the working folder, a parent of it, or home."""
    path = Path(target)
    real, here = path.resolve(), Path.cwd().resolve()
    if real == here or real in here.parents or real == Path.home().resolve():
        raise OutputError(f"--out {path} is the working folder, a parent of it, or home: choose another place.")


def _refuse(path: Path, force: bool) -> None:
    refuse_workplace(path)
    if path.exists() and not force:
        raise OutputError(f"--out {path} exists already: choose another place, or pass --force to replace it.")
    if path.is_dir() and not path.is_symlink():
        held = sorted(entry.name for entry in path.iterdir())
        if held and not set(held) & set(REPLACEABLE):
            raise OutputError(
                f"--out {path} holds {held[0]!r} and no checkpoint or shards, so --force does not replace it: "
                "choose another place, or remove it yourself."
            )


def refuse_unwritable(target: Path | str) -> None:
    """Raise `OutputError` unless a file can be made beside ``target``, or in the nearest folder above that exists."""
    path = Path(target)
    place = next(parent for parent in (path.parent, *path.absolute().parents) if parent.exists())
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=place)
        os.close(handle)
        os.unlink(name)
    except OSError as error:
        raise OutputError(f"cannot write beside {path}: {place}: {error.strerror or error}.") from error


@contextlib.contextmanager
def atomic_folder(target: Path | str, force: bool = False) -> Iterator[Path]:
    """Yield an empty folder beside ``target`` that becomes ``target`` when the block ends without an error.

    Every file is fsynced before the rename. With ``force`` an existing ``target`` and the new folder trade names
    in one step where the system can do that (Linux), so that even a killed run leaves the old folder or the new
    one; elsewhere the old folder is moved aside first and brought back on any error.

    Raises:
        OutputError: the target exists (without ``force``) or may not be replaced, its parent cannot be written, or the
            disk is full.
    """
    path = Path(target)
    _refuse(path, force)
    work = _beside(path, folder=True)
    try:
        yield work
        _sync_tree(work)
        _swap(work, path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}. Nothing there was changed.") from error
    finally:
        _remove(work)


def publish_folder(work: Path | str, target: Path | str, force: bool = False) -> None:
    """Let a finished folder become ``target``: what `atomic_folder` does at the end, for work that outlives a process.

    Args:
        work: the finished folder, in the file system of ``target``; it is gone afterwards.
        target: its new place.
        force: replace ``target`` if it exists.

    Raises:
        OutputError: the target exists (without ``force``), may not be replaced or cannot be written; ``work`` is still
            there then.
    """
    source, path = Path(work), Path(target)
    _refuse(path, force)
    try:
        _sync_tree(source)
        _swap(source, path)
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}. What it was to be is in {source}."
        ) from error
    _remove(source)  # what stood at the target before


@contextlib.contextmanager
def atomic_file(target: Path | str, force: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside ``target`` that replaces it when the block ends without an error.

    Raises:
        OutputError: the target exists (without ``force``), its parent cannot be written, or the disk is full.
    """
    path = Path(target)
    _refuse(path, force)
    work = _beside(path, folder=False)
    try:
        yield work
        sync(work)
        os.chmod(work, 0o666 & ~_umask())
        os.replace(work, path)
        _sync_name(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}. Nothing there was changed.") from error
    finally:
        work.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
    if not path.exists():
        os.replace(work, path)
    elif not _exchange(work, path):
        old = path.with_name(f".{path.name}.{os.getpid()}.old")
        os.replace(path, old)
        try:
            os.replace(work, path)
        except BaseException:
            os.replace(old, path)
            raise
        _remove(old)
    _sync_name(path)


def _exchange(first: Path, second: Path) -> bool:
    """Let two paths trade names in one step; False where the system or the file system cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, and RENAME_EXCHANGE of linux/fs.h
    return renameat2(here, os.fsencode(first), here, os.fsencode(second), exchange) == 0


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sync_tree(folder: Path) -> None:
    for root, _, files in os.walk(folder):
        for name in files:
            sync(Path(root) / name)
        sync(Path(root))


def _sync_name(path: Path) -> None:
    # The new content is in place by now, and some file systems cannot sync a folder: no reason to report failure.
    with contextlib.suppress(OSError):
        sync(path.parent)
