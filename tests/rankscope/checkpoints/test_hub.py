"""The hub: reachable, unreachable, offline, silent, gated and wrong, without a network."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants, errors

from rankscope.checkpoints import describe, open_checkpoint
from rankscope.errors import CheckpointError

Make = Callable[..., Any]
ID = "owner/model"


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: Any, tmp_path: Path) -> None:
    """Keep the machine's own cache and network out of these tests."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)


def answer(monkeypatch: Any, result: Any) -> list[Any]:
    """Let the hub answer every question about a model with ``result``, an exception or an info."""
    asked: list[Any] = []

    def model_info(self: Any, repository: str, **options: Any) -> Any:
        asked.append((repository, options))
        if isinstance(result, BaseException):
            raise result
        return result

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    return asked


def refused(model: str = ID, **options: Any) -> str:
    """The one line with which opening the model fails."""
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(model, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def http(kind: type[Exception]) -> Exception:
    return kind("no\nsuch thing", response=SimpleNamespace(headers={}, request=None, status_code=404))  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("Name or service not known"),
        TimeoutError("timed out\nafter a while"),
        errors.OfflineModeIsEnabled("offline mode is enabled"),
        http(errors.HfHubHTTPError),
        RuntimeError("anything an HTTP client may raise"),
    ],
)
def test_unreachable_says_what_works_locally(error: Exception, monkeypatch: Any) -> None:
    answer(monkeypatch, error)
    message = refused()
    offline = isinstance(error, errors.OfflineModeIsEnabled)
    why = "HF_HUB_OFFLINE is set)" if offline else f"{type(error).__name__}: "
    assert f"cannot get '{ID}' from the hub ({why}" in message
    assert "local folder" in message
    assert "connect to the network" in message


def test_interrupts_pass(monkeypatch: Any) -> None:
    answer(monkeypatch, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        open_checkpoint(ID)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (errors.GatedRepoError, rf"'{ID}' is gated .*accept its terms at https://huggingface\.co/{ID} .*hf auth login"),
        (errors.RepositoryNotFoundError, rf"no model '{ID}': .*no such public repository"),
        (errors.RevisionNotFoundError, rf"'{ID}' has no revision 'v9'"),
    ],
)
def test_wrong_names(kind: type[Exception], message: str, monkeypatch: Any) -> None:
    answer(monkeypatch, http(kind))
    assert re.search(message, refused(revision="v9"))


def test_impossible_names() -> None:
    assert "no such public repository" in refused("owner/a--b..c")


def test_pickles_are_refused_before_any_download(monkeypatch: Any) -> None:
    files = [SimpleNamespace(rfilename=name) for name in ("config.json", "pytorch_model.bin")]
    answer(monkeypatch, SimpleNamespace(siblings=files, sha="0" * 40))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("downloaded"))
    assert re.search(rf"{ID} holds only pickled weights \(pytorch_model\.bin\).*save_pretrained", refused())


def test_only_safetensors_and_json_of_the_pinned_commit(monkeypatch: Any, chronos_t5_folder: Path) -> None:
    files = [SimpleNamespace(rfilename=name) for name in ("config.json", "model.safetensors", "pytorch_model.bin")]
    asked = answer(monkeypatch, SimpleNamespace(siblings=files, sha="a" * 40))
    taken: list[dict[str, Any]] = []

    def snapshot_download(repository: str, **options: Any) -> str:
        taken.append({"repository": repository, **options})
        return str(chronos_t5_folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    checkpoint = open_checkpoint(ID, revision="v1")
    assert (checkpoint.source, checkpoint.folder) == (ID, chronos_t5_folder)
    assert asked[0][1]["revision"] == "v1"
    assert asked[0][1]["timeout"]
    assert taken[0]["revision"] == "a" * 40
    assert all(
        pattern.endswith((".json", ".safetensors")) or pattern == "spiece.model"
        for pattern in taken[0]["allow_patterns"]
    )


def test_a_description_downloads_the_config_alone(monkeypatch: Any, tmp_path: Path, tiny_config: Make) -> None:
    """Even of a model whose weights would be refused: they are not looked at."""
    files = [SimpleNamespace(rfilename=name) for name in ("config.json", "pytorch_model.bin")]
    answer(monkeypatch, SimpleNamespace(siblings=files, sha="a" * 40))
    (tmp_path / "config.json").write_text(json.dumps(tiny_config("chronos-bolt")))
    taken: list[dict[str, Any]] = []

    def snapshot_download(repository: str, **options: Any) -> str:
        taken.append(options)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    found = describe(ID)
    assert (found.source, found.folder, found.family.name) == (ID, tmp_path, "chronos-bolt")
    assert found.config == tiny_config("chronos-bolt")
    assert taken[0]["allow_patterns"] == ["config.json"]


def test_a_download_that_breaks_off(monkeypatch: Any) -> None:
    answer(monkeypatch, SimpleNamespace(siblings=None, sha="a" * 40))

    def snapshot_download(repository: str, **options: Any) -> str:
        raise ConnectionResetError("peer went away")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert "ConnectionResetError: peer went away" in refused()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/cache/blob"), "/cache/blob: No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied", "/cache"), "/cache: Permission denied"),
        (RuntimeError("Data processing error: No space left on device (os error 28)"), "No space left on device"),
    ],
)
def test_a_cache_that_cannot_be_written_is_no_matter_of_the_network(
    error: Exception, reason: str, monkeypatch: Any
) -> None:
    answer(monkeypatch, SimpleNamespace(siblings=None, sha="a" * 40))

    def snapshot_download(repository: str, **options: Any) -> str:
        raise RuntimeError("one of the files") from error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    message = refused()
    assert f"cannot keep '{ID}' in the local cache: {reason}; make room there, or set HF_HOME" in message
    assert "network" not in message


def test_the_cache_serves_without_a_network(
    monkeypatch: Any, tmp_path: Path, write_checkpoint: Make, tiny_config: Make
) -> None:
    store, commit = tmp_path / "cache" / "models--owner--model", "b" * 40
    write_checkpoint(store / "snapshots" / commit, tiny_config("chronos-bolt"))
    (store / "refs").mkdir()
    (store / "refs" / "main").write_text(commit)
    answer(monkeypatch, ConnectionError("no network"))
    assert open_checkpoint(ID).family.name == "chronos-bolt"
    assert open_checkpoint(ID, revision=commit).folder.name == commit
    assert "cannot get" in refused(revision="v2")


def test_a_local_folder_wins_over_the_hub(
    monkeypatch: Any, tmp_path: Path, write_checkpoint: Make, tiny_config: Make
) -> None:
    asked = answer(monkeypatch, ConnectionError())
    write_checkpoint(tmp_path / "owner" / "model", tiny_config("t5"))
    assert open_checkpoint(ID).family.name == "t5"
    assert not asked
    assert "revision 'v1' has no meaning for 'owner/model', which is local" in refused(revision="v1")


_OPEN = """
import sys
import rankscope.checkpoints.sources as hub
from rankscope.checkpoints import describe, open_checkpoint
from rankscope.errors import CheckpointError
hub._SECONDS = 1.0
try:
    open_checkpoint("owner/model")
except CheckpointError as error:
    print(error)
"""


def open_in_a_child(cache: Path, **environment: str) -> tuple[str, float]:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _OPEN],
        capture_output=True, text=True, check=True, timeout=90, cwd=cache,
        env={**os.environ, "HF_HOME": str(cache), "OMP_NUM_THREADS": "1", **environment},
    )  # fmt: skip
    return done.stdout, time.monotonic() - began


@pytest.mark.slow
def test_offline_switch_of_the_hub_library(tmp_path: Path) -> None:
    said, _ = open_in_a_child(tmp_path, HF_HUB_OFFLINE="1")
    assert "cannot get 'owner/model' from the hub (HF_HUB_OFFLINE is set)" in said


@pytest.mark.slow
def test_a_hub_that_accepts_and_stays_silent_does_not_hang(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        said, seconds = open_in_a_child(tmp_path, HF_HUB_OFFLINE="0", HF_ENDPOINT=endpoint, NO_PROXY="127.0.0.1")
    assert "cannot get 'owner/model' from the hub (" in said
    assert seconds < 60
