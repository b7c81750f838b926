"""Files of calibration statistics: saved, resumed bit for bit, refused where they are another's, damaged."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from rankscope import open_checkpoint
from rankscope.checkpoints import Checkpoint
from rankscope.compress import CompressOptions, compress
from rankscope.compress.calibration import Calibration, CalibrationSet, calibrate, calibration_set, load_calibration
from rankscope.compress.calibration.moments import PARTS, MomentSink
from rankscope.compress.calibration.passes import pass_inputs
from rankscope.errors import DataError, OptionError


def series(n: int = 5, seed: int = 0) -> CalibrationSet:
    return calibration_set(f"kernelsynth:{n}", context=24, horizon=6, seed=seed)


def same(left: Calibration, right: Calibration) -> bool:
    return left.settings == right.settings and all(
        torch.equal(getattr(left.streams[stream], name), getattr(right.streams[stream], name))
        for stream in left.streams
        for name in PARTS
    )


def test_save_and_load(make: Callable[..., Checkpoint], tmp_path: Path) -> None:
    checkpoint = make("chronos-bolt")
    found = calibrate(checkpoint, series())
    found.save(tmp_path / "moments.safetensors")
    again = load_calibration(tmp_path / "moments.safetensors")
    assert same(found, again)
    assert {part for site in checkpoint.sites() for part in (again.of(site).tokens,)} == {5, 30 + 5}
    again.check(checkpoint)


@pytest.mark.skipif(sys.platform != "linux", reason="mappings are listed by Linux")
def test_a_file_that_was_read_is_not_held_in_memory(make: Callable[..., Checkpoint], tmp_path: Path) -> None:
    file = tmp_path / "moments.safetensors"
    calibrate(make("chronos-bolt"), series(), file=file)
    found = load_calibration(file)
    assert found.streams
    assert str(file) not in Path("/proc/self/maps").read_text()


def test_equal_runs_write_equal_bytes(make: Callable[..., Checkpoint], tmp_path: Path) -> None:
    checkpoint = make("chronos-bolt")
    files = [tmp_path / f"{at}.safetensors" for at in range(6)]  # the order of three entries was left to chance
    for file in files:
        calibrate(checkpoint, series(2), file=file)
    assert len({file.read_bytes() for file in files}) == 1


def test_files_of_earlier_releases_are_read(make: Callable[..., Checkpoint], tmp_path: Path) -> None:
    file = tmp_path / "moments.safetensors"
    now = calibrate(make("chronos-bolt"), series(2), file=file)
    with safe_open(file, "pt") as opened:
        facts = json.loads(opened.metadata()["calibration"])
    save_file(load_file(file), file, metadata=facts)
    assert load_calibration(file).settings == now.settings


@pytest.mark.slow
@pytest.mark.parametrize("decoder", ["teacher", "sampled"])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(
    decoder: str, make: Callable[..., Checkpoint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankscope.compress.calibration.collect.SAVE_SECONDS", 0.0)
    monkeypatch.setattr("rankscope.compress.calibration.collect.SAVING", 0)
    checkpoint, given, file = make("chronos-t5"), series(9), tmp_path / "moments.safetensors"
    options: dict[str, Any] = {"decoder": decoder, "batch_size": 1, "seed": 3}
    straight = calibrate(checkpoint, given, **options)

    def stop(done: int, total: int, what: str) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate(checkpoint, given, file=file, progress=stop, **options)
    assert not file.exists()
    seen: list[int] = []
    resumed = calibrate(checkpoint, given, file=file, progress=lambda done, *_: seen.append(done), **options)
    assert seen == [5, 6, 7, 8, 9]  # nothing is done twice
    assert same(straight, resumed)
    assert same(straight, load_calibration(file))
    monkeypatch.setattr("rankscope.checkpoints.Checkpoint.module", lambda *_: pytest.fail("a finished file is read"))
    assert same(straight, calibrate(checkpoint, given, file=file, **options))


def test_ctrl_c_within_a_batch_keeps_that_batch(
    make: Callable[..., Checkpoint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal comes when some sums have the third batch and others have not."""
    checkpoint, given, file = make("chronos-bolt"), series(6), tmp_path / "moments.safetensors"
    straight = calibrate(checkpoint, given, batch_size=1)
    left, add = 2 * len(straight.streams) + 2, MomentSink.add

    def adding(*args: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            signal.raise_signal(signal.SIGINT)
        add(*args)

    with monkeypatch.context() as stopped:
        stopped.setattr(MomentSink, "add", adding)
        with pytest.raises(KeyboardInterrupt):
            calibrate(checkpoint, given, batch_size=1, file=file)
    assert left < 0
    assert not file.exists()
    seen: list[int] = []
    resumed = calibrate(checkpoint, given, batch_size=1, file=file, progress=lambda done, *_: seen.append(done))
    assert seen == [3, 4, 5, 6]
    assert same(straight, resumed)


def test_ctrl_c_while_the_file_is_written_keeps_all(
    make: Callable[..., Checkpoint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, given, file = make("chronos-bolt"), series(4), tmp_path / "moments.safetensors"

    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(Calibration, "save", stopped)
        with pytest.raises(KeyboardInterrupt):
            calibrate(checkpoint, given, file=file)
    seen: list[int] = []
    resumed = calibrate(checkpoint, given, file=file, progress=lambda done, *_: seen.append(done))
    assert seen == [4]
    assert same(calibrate(checkpoint, given), resumed)
    assert not (tmp_path / "moments.safetensors.run").exists()


def test_a_pass_that_fails_leaves_what_was_saved(
    make: Callable[..., Checkpoint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankscope.compress.calibration.collect.SAVE_SECONDS", 0.0)
    monkeypatch.setattr("rankscope.compress.calibration.collect.SAVING", 0)
    checkpoint, given, file = make("chronos-bolt"), series(6), tmp_path / "moments.safetensors"
    calls, whole = 0, pass_inputs

    def failing(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise MemoryError
        return whole(*args)

    with monkeypatch.context() as broken:
        broken.setattr("rankscope.compress.calibration.collect.pass_inputs", failing)
        with pytest.raises(MemoryError):
            calibrate(checkpoint, given, batch_size=2, file=file)
    assert not file.exists()
    assert same(calibrate(checkpoint, given, batch_size=2, file=file), calibrate(checkpoint, given, batch_size=2))


@pytest.mark.parametrize(
    ("changes", "name"),
    [({"batch_size": 3}, "batch_size"), ({"seed": 1}, "seed"), ({"dtype": "bfloat16"}, "dtype"), ({}, "data")],
)
def test_a_file_of_other_settings_is_refused(
    changes: dict[str, Any], name: str, make: Callable[..., Checkpoint], tmp_path: Path
) -> None:
    checkpoint, file = make("chronos-bolt"), tmp_path / "moments.safetensors"
    calibrate(checkpoint, series(), file=file)
    before = file.read_bytes()
    with pytest.raises(OptionError, match=f"another {name} ") as caught:
        calibrate(checkpoint, series(seed=0 if changes else 5), file=file, **changes)
    assert "\n" not in str(caught.value)
    assert file.read_bytes() == before


def test_a_file_of_other_sites_is_refused(make: Callable[..., Checkpoint], tmp_path: Path) -> None:
    checkpoint, file = make("chronos-bolt"), tmp_path / "moments.safetensors"
    found = calibrate(checkpoint, series(), sites=checkpoint.sites(["q"]), file=file)
    with pytest.raises(OptionError, match="other sites"):
        calibrate(checkpoint, series(), file=file)
    with pytest.raises(OptionError, match=r"no moments of the input of .*\.o: calibrate again"):
        found.of(checkpoint.sites(["o"])[0])


@pytest.mark.parametrize(
    "tensor", ["encoder.block.0.layer.0.SelfAttention.q.weight", "decoder.final_layer_norm.weight"]
)
def test_another_models_moments_are_refused(
    tensor: str, make: Callable[..., Checkpoint], tmp_path: Path, write_checkpoint: Any
) -> None:
    """One number anywhere makes it another model."""
    checkpoint = make("chronos-bolt")
    found = calibrate(checkpoint, series())
    tensors = {name: checkpoint.tensor(name) for name in checkpoint.index}
    tensors[tensor].view(-1)[-1] += 0.5
    other = open_checkpoint(write_checkpoint(tmp_path / "other", checkpoint.config, tensors))
    with pytest.raises(OptionError, match="belongs to") as caught:
        found.check(other)
    assert "\n" not in str(caught.value)
    found.save(tmp_path / "moments.safetensors")
    for source in (found, tmp_path / "moments.safetensors"):
        with pytest.raises(OptionError, match="belongs to"):
            compress(
                other,
                CompressOptions(attention_ratio=0.5, method="whitened", calibration=source),
                out=tmp_path / "small",
            )
    assert not (tmp_path / "small").exists()


def test_a_copy_of_the_model_elsewhere_is_the_same_model(
    make: Callable[..., Checkpoint], tmp_path: Path, write_checkpoint: Any
) -> None:
    checkpoint = make("chronos-bolt")
    tensors = {name: checkpoint.tensor(name) for name in checkpoint.index}
    copy = open_checkpoint(write_checkpoint(tmp_path / "copy", checkpoint.config, tensors))
    file = tmp_path / "moments.safetensors"
    calibrate(checkpoint, series(), file=file).check(copy)
    saved = file.read_bytes()
    calibrate(copy, series(), file=file)  # goes on with what the other left
    assert file.read_bytes() == saved


def corrupt(file: Path, how: str) -> None:
    tensors = load_file(file)
    first = next(name for name in tensors if name.endswith(":inside"))
    if how == "absent":
        file.unlink()
    elif how == "folder":
        file.unlink()
        file.mkdir()
    elif how == "empty":
        file.write_bytes(b"")
    elif how == "cut":
        file.write_bytes(file.read_bytes()[:-100])
    elif how == "text":
        file.write_text("no tensors here, only words that somebody wrote")
    elif how == "foreign":
        save_file(tensors, file, metadata={"format": "pt"})
    else:
        with safe_open(file, "pt") as opened:
            metadata = opened.metadata()
        if how == "nan":
            tensors[first][0, 0] = torch.nan
        elif how == "part":
            del tensors[first]
        elif how == "settings":
            metadata = {"calibration": json.dumps({**json.loads(metadata["calibration"]), "settings": '{"model": 1}'})}
        elif how in ("[1]", "{", "[" * 5000):
            metadata = {"calibration": how}
        save_file(tensors, file, metadata=metadata)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("absent", "there is no such file"),
        ("folder", "there is no such file"),
        ("empty", "is damaged"),
        ("cut", "is damaged"),
        ("text", "is damaged"),
        ("foreign", "is not a calibration: its schema is None"),
        ("nan", "NaN or Inf"),
        ("part", r"is damaged.*inside"),
        ("settings", "is damaged"),
        ("[1]", "is damaged.*not a JSON object"),
        ("{", "is damaged"),
        ("[" * 5000, "is damaged"),
    ],
)
def test_damaged_and_foreign_files(how: str, message: str, make: Callable[..., Checkpoint], tmp_path: Path) -> None:
    file = tmp_path / "moments.safetensors"
    checkpoint = make("chronos-bolt")
    calibrate(checkpoint, series(2), file=file)
    corrupt(file, how)
    with pytest.raises(DataError, match=message) as caught:
        load_calibration(file)
    assert "\n" not in str(caught.value)
    assert str(caught.value).count(str(file)) <= 1
    if how not in ("absent", "folder"):
        with pytest.raises(DataError, match=message):
            calibrate(checkpoint, series(2), file=file)
