"""Files that a run reads again are damaged: one error that names the file and says what to do."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save

from rankscope import open_checkpoint
from rankscope.engine import silent
from rankscope.errors import DataError, OutputError
from rankscope.io.run_store import MANIFEST
from rankscope.train.config import Teacher
from rankscope.train.initial import initial_checkpoint
from rankscope.train.stream import BANK, kernel_series
from rankscope.train.teaching import CHUNK, FOLDER, answers
from rankscope.train.trainer import training_run

JSON: dict[str, bytes] = {
    "truncated": b'{"config": {"family": "chron',
    "empty": b"",
    "not JSON": b"\x93\xff\x00",
    "too deep": b"[" * 3000,
    "a list": b"[1]",
    "missing key": b"{}",
    "another type": b'{"config": 5, "seed": "x", "report": [], "seconds": "x", "changes": 5}',
    "another field": b'{"config": {"d": 1}, "seed": 1e400, "report": {}, "seconds": NaN, "changes": [1]}',
}


def one_line(error: BaseException, file: Path) -> None:
    assert "\n" not in str(error)
    assert str(file) in str(error)


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npz(array: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, array)
    return stream.getvalue()


BANKS: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda whole: whole[:-1],
    "header alone": lambda whole: whole[:128],
    "empty": lambda whole: b"",
    "no numpy file": lambda whole: b"{}",
    "archive": lambda whole: npz(np.zeros(3)),
    "objects": lambda whole: npy(np.array([{}], dtype=object)),
    "text": lambda whole: npy(np.array(["a"])),
    "another shape": lambda whole: npy(np.zeros((2, 3), dtype=np.float32)),
    "another type": lambda whole: npy(np.load(io.BytesIO(whole)).astype(np.float64)),
    "beyond memory": lambda whole: whole.replace(b"(4, ", b"(4" + b"0" * 14 + b", ").replace(b" " * 14 + b"\n", b"\n"),
}


@pytest.mark.parametrize("damage", BANKS)
def test_the_bank(tiny: Any, tmp_path: Path, damage: str) -> None:
    config = tiny(bank_kernels=2, bank_draws=2)
    bank, file = kernel_series(config, tmp_path, silent), tmp_path / BANK
    assert bank is not None
    file.write_bytes(BANKS[damage](file.read_bytes()))
    with pytest.raises(DataError, match="Delete the file, and it is made anew") as caught:
        kernel_series(config, tmp_path, silent)
    one_line(caught.value, file)
    file.unlink()
    again = kernel_series(config, tmp_path, silent)
    assert again is not None
    np.testing.assert_array_equal(again, bank)


class Corpus:
    def __getitems__(self, indices: Any) -> list[dict[str, torch.Tensor]]:
        return [{"context": torch.arange(32.0) + i % 7, "target": torch.arange(8.0)} for i in indices]


def without(name: str) -> Callable[[Path], bytes]:
    return lambda file: save({key: one for key, one in load_file(file).items() if key != name})


def with_other(name: str, tensor: torch.Tensor) -> Callable[[Path], bytes]:
    return lambda file: save(load_file(file) | {name: tensor})


ANSWERS: dict[str, Callable[[Path], bytes]] = {
    "truncated": lambda file: file.read_bytes()[:-1],
    "empty": lambda file: b"",
    "no safetensors": lambda file: b"{}",
    "no answer": without("answer"),
    "no context": without("context"),
    "fewer series": with_other("target", torch.zeros(CHUNK - 1, 8)),
    "another horizon": with_other("answer", torch.zeros(CHUNK, 9, 7)),
    "no axis": with_other("context", torch.zeros(CHUNK)),
    "whole numbers": with_other("answer", torch.zeros(CHUNK, 9, 8, dtype=torch.int64)),
}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory, tiny: Any) -> tuple[Any, Path]:
    """A run, and its folder with the answers of an untrained teacher."""
    from rankscope.train.models import new_model

    folder = tmp_path_factory.mktemp("teacher")
    torch.manual_seed(3)
    new_model(tiny(context=32, horizon=8)).save_pretrained(folder / "model")
    config = tiny(context=32, horizon=8, teacher=Teacher(str(folder / "model"), series=4, paths=2))
    assert len(answers(config, Corpus(), folder, silent)) == 4
    return config, folder


@pytest.mark.parametrize("damage", ANSWERS)
def test_answers_of_the_teacher(teacher: tuple[Any, Path], tmp_path: Path, damage: str) -> None:
    config, folder = teacher
    file = shutil.copytree(folder / FOLDER, tmp_path / FOLDER) / "00000.safetensors"
    file.write_bytes(ANSWERS[damage](file))
    with pytest.raises(DataError, match="Delete the file, and it is asked again") as caught:
        answers(config, Corpus(), tmp_path, silent)
    one_line(caught.value, file)


@pytest.mark.parametrize("name", ["pretrain.json", "standin.json"])
@pytest.mark.parametrize("damage", JSON)
def test_records_of_training(bolt_folder: Path, tmp_path: Path, name: str, damage: str) -> None:
    file = bolt_folder / name
    file.write_bytes(JSON[damage])
    with pytest.raises(DataError) as caught:
        initial_checkpoint(open_checkpoint(bolt_folder), tmp_path / "initial")
    one_line(caught.value, file)


def test_a_stand_in_of_a_family_that_has_none(bolt_folder: Path, tmp_path: Path) -> None:
    (bolt_folder / "standin.json").write_text('{"seed": 1}')
    with pytest.raises(DataError, match="no small models of"):
        initial_checkpoint(open_checkpoint(bolt_folder), tmp_path / "initial")


@pytest.mark.parametrize("changes", [5, [1], [{}], [{"step": "x"}]])
def test_recorded_changes_of_an_unfinished_run(tiny: Any, tmp_path: Path, changes: Any) -> None:
    run = training_run(tiny(), tmp_path / "out", "fp32", 1)
    with run.open(resume=False, force=False):
        (run.folder / "checkpoint-1").mkdir()
    file = run.folder / MANIFEST
    file.write_text(json.dumps(json.loads(file.read_text()) | {"changes": changes}))
    with pytest.raises(OutputError, match="is damaged") as caught:
        training_run(tiny(), tmp_path / "out", "fp32", 1).check(resume=True, force=False)
    one_line(caught.value, file)
