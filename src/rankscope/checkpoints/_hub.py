"""Checkpoints from the Hugging Face hub, without hanging and without pickles."""

from __future__ import annotations

from pathlib import Path

from rankscope.checkpoints._weights import SHARDED, SINGLE, pickle_only
from rankscope.errors import CheckpointError

_CONFIG = ["config.json"]
_TOKENIZER = ["tokenizer.json", "tokenizer_config.json"]
_FILES = [*_CONFIG, "generation_config.json", *_TOKENIZER, SINGLE, SHARDED, "model-*.safetensors"]
_SECONDS = 10.0


def download(repository: str, revision: str | None, alternatives: str, config_only: bool = False) -> Path:
    """Download the safetensors and JSON files of a hub repository, or find them in the local cache.

    Args:
        repository: hub id, ``owner/name``.
        revision: branch, tag or commit; the default branch where None.
        alternatives: what the error message offers where the hub cannot be reached.
        config_only: leave the weights where they are.

    Raises:
        CheckpointError: repository or revision do not exist or are gated, the weights are pickled, or the hub
            cannot be reached and the cache does not hold the model.
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
        raise CheckpointError(_unreachable(repository, alternatives, error)) from error


def _from_cache(repository: str, revision: str | None, files: list[str], alternatives: str, reason: Exception) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=files, local_files_only=True))
    except Exception as error:
        raise CheckpointError(_unreachable(repository, alternatives, reason)) from error


def _unreachable(repository: str, alternatives: str, reason: Exception) -> str:
    first = next(iter(str(reason).splitlines()), "")
    why = f"{type(reason).__name__}: {first}"[:160]
    return (
        f"cannot get {repository!r} from the hub ({why}): there is no folder of that name and the local "
        f"cache does not hold it; connect to the network, or pass {alternatives}."
    )
