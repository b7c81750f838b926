"""A run that can be stopped: its settings, the items that are done, and the lock of who is at work, in a folder."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from rankscope.errors import OptionError, OutputError
from rankscope.io import codec
from rankscope.io.atomic import refuse_workplace, sweep

MANIFEST = "_manifest.json"  # readers of folders (pandas, Arrow, Spark, Ray Data) skip names that begin so
LOCK, LOCKS = ".lock", ".locks"
EMPTYING, UNFINISHED, FINISHED = "emptying", "unfinished", "finished"
"""States of a run; one that is begun anew passes through the first, lest a kill leave items of the run before it."""

Record = TypeVar("Record")
MayChange = Container[str] | Callable[[str, Any, Any], bool]
"""Settings that a run may go on with other values of: their names, or a function of name, earlier and new value."""


@contextlib.contextmanager
def locked(file: Path, what: str, wait: float = 0.0) -> Iterator[None]:
    """Hold a lock file for the block; the system lets go of it when the process dies, however it dies.

    Args:
        file: the lock; it stays where it is.
        what: begins the error: "the sweep is being run".
        wait: seconds to wait for another process to let go.

    Raises:
        OutputError: another process holds it, or it cannot be made.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(file, timeout=wait, thread_local=False)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise OutputError(f"{what} by another process, which holds {file}: wait for it or stop it.") from None
    except OSError as error:
        raise OutputError(f"cannot write {file.parent}: {error.strerror or error}.") from error
    try:
        yield
    finally:
        lock.release()


def refuse_both(resume: bool, force: bool) -> None:
    """Raise `OptionError` where a run is to go on and to start anew."""
    if resume and force:
        raise OptionError("--resume and --force are mutually exclusive.")


class RunStore:
    """Folder of a run that may be stopped at any moment, and goes on where it was.

    ``_manifest.json`` says what the run is a function of and whether it is finished; ``<items>/<name>.json`` is the
    record of an item that is done. Each is written whole or not at all, so that a kill costs the item at hand; what it
    leaves of single files here, or in a folder directly below, goes when the store is opened again.

    Args:
        root: the folder.
        what: the run, in errors: "a table 2".
        schema: of the manifest; a folder with another one is left alone.
        settings: what the run is a function of, as JSON can hold it. None for a folder without a manifest: anything
            may lie in it, items say themselves what they were made from, and every call goes on.
        facts: what else the manifest says; no condition of going on.
        items: folder of the records below ``root``.
        owns: patterns of the other names in ``root`` that starting anew removes.
        may_change: settings that may be others when the run goes on.
    """

    def __init__(
        self,
        root: Path | str,
        what: str,
        schema: str = "",
        settings: Mapping[str, Any] | None = None,
        *,
        facts: Mapping[str, Any] | None = None,
        items: str = "items",
        owns: tuple[str, ...] = (),
        may_change: MayChange = (),
    ) -> None:
        self.root, self.what, self.schema = Path(root), what, schema
        self.settings = None if settings is None else _as_stored(settings)
        self.facts: dict[str, Any] = dict(facts or {})
        self.finished = False
        self._items = self.root / items
        self._owns = owns
        self._may_change = may_change

    def check(self, resume: bool = False, force: bool = False) -> None:
        """Refuse what must not be begun or gone on with; nothing is written.

        Raises:
            OutputError: the folder holds something else, or a run like this one and neither ``resume`` nor ``force``
                is given, or a run with other settings and ``force`` is not given; or another process is at work there.
            OptionError: both are given.
        """
        if self.settings is not None and (self.root / LOCK).is_file():
            with self._locked():  # of a run that is being made nothing else is to be said
                pass
        self._check(resume, force)

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        return locked(self.root / LOCK, f"{self.what} in {self.root} is being made")

    def _check(self, resume: bool, force: bool) -> None:
        refuse_both(resume, force)
        if self.root.exists() and not self.root.is_dir():
            raise OutputError(f"--out {self.root} is a file: name a folder.")
        if self.settings is None:
            return
        refuse_workplace(self.root)
        found = self.manifest(forgiving=force)
        if found is None:
            # a kill before the first manifest leaves the lock, and perhaps half a file
            if not self.empty:
                raise self._foreign()
        elif resume:
            self._check_settings(found["settings"])
        elif not force:
            raise OutputError(
                f"{self.root} holds {self.what} already: go on with --resume, or start anew with --force or another "
                "--out."
            )

    @contextlib.contextmanager
    def open(self, resume: bool = False, force: bool = False) -> Iterator[RunStore]:
        """Begin, go on with what is there (if anything is), or start anew; no other process can until the block ends.

        An error before anything was done leaves no folder, or what else was in it.

        Raises:
            OutputError: see `check`; or another process is at work on the run.
            OptionError: both ``resume`` and ``force``.
        """
        self.check(resume, force)
        with self._locked():
            self._check(resume, force)
            for folder in (self.root, *filter(Path.is_dir, self.root.glob("*"))):
                sweep(folder)
            if self.settings is None:
                yield self
                return
            self._begin(force)
            try:
                yield self
            except Exception:
                left = self.root.iterdir() if self.root.is_dir() else ()
                if all(path.name == MANIFEST or path.name.startswith(".") for path in left):
                    self.discard()
                raise

    @property
    def empty(self) -> bool:
        """True if there is no folder, or one with nothing but hidden files."""
        return not self.root.is_dir() or all(path.name.startswith(".") for path in self.root.iterdir())

    def manifest(self, forgiving: bool = False) -> dict[str, Any] | None:
        """Manifest of the run in the folder, None where there is none.

        Raises:
            OutputError: it holds another kind of run; or a damaged manifest, unless ``forgiving``.
        """
        file = self.root / MANIFEST
        if not file.is_file():
            return None
        try:
            found = codec.loads(file.read_text(encoding="utf-8"))
            schema, _ = found["schema"], found["settings"].items()
            if found["state"] not in (EMPTYING, UNFINISHED, FINISHED):
                raise ValueError("no such state")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if forgiving:
                return {"settings": {}}
            raise OutputError(f"{file} is damaged: start anew with --force, or choose another --out.") from error
        if schema != self.schema:
            raise self._foreign()
        return dict(found)

    def note(self, **facts: Any) -> None:
        """Add to what the manifest says beside the settings; None takes a fact away."""
        self.facts = {name: value for name, value in (self.facts | facts).items() if value is not None}
        self._write(FINISHED if self.finished else UNFINISHED)

    def seal(self, **facts: Any) -> None:
        """Say that nothing is left to do."""
        self.finished = True
        self.note(**facts)

    def discard(self) -> None:
        """Remove what the run made: it is safe elsewhere. The folder goes, too, unless it holds more."""
        sweep(self.root)
        with contextlib.suppress(OSError):
            self._remove(self._owns, self.root)
            self._remove((self._items.name, LOCKS, MANIFEST), self.root)
            (self.root / LOCK).unlink(missing_ok=True)
            self.root.rmdir()

    def path(self, name: str, suffix: str = ".json") -> Path:
        """File of an item: its record, or what lies beside that under another suffix."""
        return self._items / f"{name}{suffix}"

    def names(self) -> list[str]:
        """Items that are done, sorted."""
        return sorted(path.stem for path in self._items.glob("*.json") if not path.name.startswith((".", "_")))

    def __contains__(self, name: str) -> bool:
        return self.path(name).is_file()

    def get(self, name: str, kind: type[Record]) -> Record | None:
        """Record of an item, None where it is not done.

        Raises:
            DataError: the file is damaged.
        """
        file = self.path(name)
        return codec.read(kind, file, fix="Delete the file, and it is made anew.") if file.is_file() else None

    def put(self, name: str, record: Any) -> None:
        """Keep the record of an item, a dataclass; it is on disk when this returns."""
        codec.write(self.path(name), record)

    def claim(self, name: str, wait: float = 0.0) -> contextlib.AbstractContextManager[None]:
        """Hold the lock of one item, for runs whose items are made by several processes.

        Raises:
            OutputError: on entering, another process holds it.
        """
        return locked(self.root / LOCKS / f"{name}.lock", f"{name} is being made", wait)

    def _begin(self, force: bool) -> None:
        found = self.manifest(forgiving=force)
        if found is not None and (force or found["state"] == EMPTYING):
            self._write(EMPTYING)
            self._remove(("*",), self._items)
            self._remove(self._owns, self.root)
        elif found is not None:
            self.facts = {name: value for name, value in found.items() if name not in _OWN_FIELDS} | self.facts
            self.finished = found["state"] == FINISHED
        if not self.finished:
            self.note()

    def _remove(self, patterns: tuple[str, ...], folder: Path) -> None:
        for path in [path for pattern in patterns for path in folder.glob(pattern) if path.name != LOCK]:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def _foreign(self) -> OutputError:
        return OutputError(f"{self.root} exists and holds something else than {self.what}: choose another --out.")

    def _check_settings(self, was: Mapping[str, Any]) -> None:
        may = self._may_change
        for name, before, now in differences(was, self.settings or {}):
            if not (may(name, before, now) if callable(may) else name.partition(".")[0] in may):
                begun = f"without {name}" if before is None else f"with {name} {before!r}"
                asked = "without it" if now is None else repr(now)
                raise OutputError(
                    f"{self.root} was begun {begun}, not {asked}: go on as it was begun, choose another "
                    "--out, or start anew with --force."
                )

    def _write(self, state: str) -> None:
        document = {"schema": self.schema, **self.facts, "settings": self.settings, "state": state}
        codec.write(self.root / MANIFEST, document)


_OWN_FIELDS = ("schema", "settings", "state")


def differences(was: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """Settings that differ between two records or mappings: dotted name, earlier and new value, as JSON has them.

    >>> list(differences({"a": {"b": 1, "c": (2,)}}, {"a": {"b": 3, "c": [2]}, "d": 4}))
    [('a.b', 1, 3), ('d', None, 4)]
    """
    earlier, later = _as_stored(was), _as_stored(now)
    for name in {**earlier, **later}:
        before, after = earlier.get(name), later.get(name)
        nested = any(isinstance(value, dict) for value in (before, after))
        if nested and all(isinstance(value, dict) or value is None for value in (before, after)):
            yield from ((f"{name}.{inner}", *values) for inner, *values in differences(before or {}, after or {}))
        elif before != after:
            yield name, before, after


def _as_stored(settings: Any) -> dict[str, Any]:
    return dict(json.loads(codec.text(settings)))
