"""Writes that either happen whole or not at all.

What is being written lies in a folder beside its target, ``.NAME.….partial``, whose lock the writing process holds. A
process that is killed leaves one behind; the next that is to write the same target sweeps it away, since nobody holds
it: in `refuse_existing`, before long work, and in `atomic_folder`. Single files are written by the thousand into one
folder, which is not looked through each time.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fnmatch
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from rankscope.errors import OutputError

CONTENT = ("model.safetensors", "model-*.safetensors", "design.json", "shards.index.json")
"""Names of which every checkpoint, design and set of shards has one."""
WRITTEN = (
    *CONTENT,
    "shard-*",
    "config.json", "model.safetensors.index.json", "generation_config.json", "preprocessor_config.json",
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
    "spiece.model", "vocab.txt", "vocab.json", "merges.txt",
    "README.md", "compress.json", "recipe.yaml", "heal.json", "pretrain.json", "pretrain.yaml", "standin.json",
    "vq.json", "loss.csv", "validation.csv", "spectra.parquet", "kept", "tensorboard",
)  # fmt: skip
"""Names that rankscope and ``save_pretrained`` write into such folders; force replaces one that holds no other."""
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
"""Errors of the system for a disk that is full, read-only or broken."""
PARTIAL = ".partial"
"""Ends the names of folders in which something is being written."""
_DRAWN = r"[a-z0-9_]{8}"
"""Pattern of what is drawn between the target's name and `PARTIAL`."""
_NAME = 100
"""Bytes of a target's name in that of its partial folder."""


def refuse_existing(target: Path | str, force: bool, *, file: bool = False) -> None:
    """Raise `OutputError` when ``target`` may not be written or replaced; call it before long work begins.

    By ``force`` a file (``file``) replaces a file. A folder replaces one that is empty or holds what rankscope writes
    in folders, checkpoints and shards, and nothing else; the working folder, its parents and the home folder never are.
    """
    path = Path(target)
    _refuse(path, force, file)
    path = _followed(path) if file else path
    refuse_unwritable(path)
    sweep(path.parent, path.name)


def refuse_workplace(target: Path | str) -> None:
    """Raise `OutputError` when ``target`` is the working folder, a parent of it, or home."""
    path = Path(target)
    real, here = path.resolve(), Path.cwd().resolve()
    if real == here or real in here.parents or real == Path.home().resolve():
        raise OutputError(f"--out {path} is the working folder, a parent of it, or home: choose another place.")


def _refuse(path: Path, force: bool, file: bool = False) -> None:
    refuse_workplace(path)
    if path.is_dir() if file else path.is_file():
        raise OutputError(f"--out {path} is a {'folder: name a file' if file else 'file: name a folder'}.")
    if path.is_symlink() and not path.exists():
        raise OutputError(f"--out {path} is a link to {os.readlink(path)}, which does not exist: remove the link.")
    if path.exists() and not force:
        raise OutputError(f"{path} exists already: choose another place (--out), or replace it by force (--force).")
    if path.is_dir() and not path.is_symlink():
        held = sorted(entry.name for entry in path.iterdir())
        foreign = next((name for name in held if not _among(WRITTEN, name)), None)
        if held and not any(_among(CONTENT, name) for name in held):
            why = f"{foreign or held[0]!r} and no checkpoint or shards"
        elif foreign is not None:
            why = f"{foreign!r}, which rankscope does not write there"
        else:
            return
        raise OutputError(
            f"--out {path} holds {why}, so --force does not replace it: choose another place, or remove it yourself."
        )


def _followed(path: Path) -> Path:
    """The file that is written in the place of a link to it."""
    return path.resolve() if path.is_symlink() else path


def _among(patterns: Iterable[str], name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, one) for one in patterns)


def refuse_unwritable(target: Path | str) -> None:
    """Raise `OutputError` unless a file can be made beside ``target``, or in the nearest folder above that exists."""
    path = Path(target)
    place = next(parent for parent in (path.parent, *path.absolute().parents) if parent.exists())
    try:
        _partial(place / path.name).rmdir()
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
    sweep(path.parent, path.name)
    with _beside(path) as work, _named(path, work):
        yield work
        _sync_tree(work)
        _swap(work, path)


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

    Where the target is a link, the file that it points to is replaced. A file that is replaced keeps its mode.

    Raises:
        OutputError: the target exists (without ``force``) or is a folder, its parent cannot be written, or the disk is
            full.
    """
    path = Path(target)
    _refuse(path, force, file=True)
    path = _followed(path)
    with _beside(path) as folder, _named(path, folder):
        work = folder / path.name
        work.touch()
        mode = stat.S_IMODE((path if path.exists() else work).stat().st_mode)
        yield work
        sync(work)
        work.chmod(mode)  # safetensors writes for the owner alone
        os.replace(work, path)
        _sync_folder(path.parent)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """Make a folder in the same file system as ``path``, so that a rename is atomic; locked meanwhile, then removed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made, lock = _made(path)
    except OSError as error:
        raise OutputError(f"cannot write beside {path}: {error.strerror or error}.") from error
    try:
        yield made
    finally:
        _remove(made)
        if lock is not None:
            os.close(lock)


def _made(path: Path) -> tuple[Path, int | None]:
    """A new partial folder and its lock."""
    while True:
        made = _partial(path)
        with contextlib.suppress(BlockingIOError, FileNotFoundError):  # swept by another process before it was locked
            lock = _lock(made)
            if made.exists():
                return made, lock
            if lock is not None:
                os.close(lock)


def _partial(path: Path) -> Path:
    """Make a folder of a new name beside ``path``; readable by all that the umask lets, unlike `tempfile.mkdtemp`'s."""
    made = path.with_name(f".{_short(path.name)}.{secrets.token_hex(4)}{PARTIAL}")
    made.mkdir()
    return made


def _short(name: str) -> str:
    return os.fsencode(name)[:_NAME].decode("utf-8", "ignore")


def sweep(folder: Path, target: str | None = None) -> None:
    """Remove what killed processes left of earlier writes into a folder: to any file or folder in it, or to one."""
    stem = ".+" if target is None else re.escape(_short(target))
    ours = re.compile(rf"\.{stem}\.{_DRAWN}{re.escape(PARTIAL)}", re.DOTALL)
    for path in [path for path in folder.glob(f".*{PARTIAL}") if ours.fullmatch(path.name)]:
        with contextlib.suppress(OSError):
            lock = _lock(path)
            if lock is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def _lock(folder: Path) -> int | None:
    """Lock a folder until the handle is closed or the process ends; None where the system has no such locks.

    Raises:
        BlockingIOError: another process holds it.
    """
    try:
        import fcntl
    except ImportError:
        return None
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            raise
        return None
    return handle


@contextlib.contextmanager
def _named(path: Path, work: Path) -> Iterator[None]:
    """Say of errors of writing what could not be written; errors of what the block reads are left as they are."""
    try:
        yield
    except Exception as error:
        reason = disk_error(error)
        if reason is None and isinstance(error, OSError) and _concerns(error, path, work):
            reason = error.strerror
        if reason is None:
            raise
        raise OutputError(f"cannot write {path}: {reason}. Nothing there was changed.") from error


def _concerns(error: OSError, *places: Path) -> bool:
    """True if an error names one of the places, or something in it."""
    names = (Path(os.fsdecode(name)) for name in (error.filename, error.filename2) if isinstance(name, (str, bytes)))
    return any(place in (name, *name.parents) for name in names for place in places)


def disk_error(error: Exception) -> str | None:
    """Reason of a write that failed by the disk: it is full, read-only or broken; None where an error is another.

    Libraries that write in Rust and C++ raise errors of their own.
    """
    if isinstance(error, OSError):
        return error.strerror if error.errno in DISK else None
    found = re.search(r"I/O error: (.+) \(os error \d+\)", str(error))
    if found is not None and type(error).__name__ == "SafetensorError":
        return found[1]
    if isinstance(error, RuntimeError) and any(one in str(error) for one in _TORCH):
        return "the file could not be written whole; is the disk full?"
    return None


_TORCH = ("inline_container", "PytorchStreamWriter", "iostream error")
"""Words of torch's errors of a file that could not be written."""


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
    _sync_folder(path.parent)


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
        _sync_folder(Path(root))


def _sync_folder(folder: Path) -> None:
    # The content is in place by now, and some file systems cannot sync a folder: no reason to report failure.
    with contextlib.suppress(OSError):
        sync(folder)
