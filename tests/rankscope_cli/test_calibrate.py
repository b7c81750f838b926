"""``rankscope calibrate``, and `compress` with what it saved."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rankscope.compress.calibration import load_calibration
from rankscope.compress.calibration.moments import PARTS

SET = ("--calibration", "kernelsynth:20")
JOINT = ("--method", "joint", "--attention-ratio", "0.6", "--allocation", "energy")


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_what_is_saved_serves_compress_and_changes_nothing(
    cli: Callable[..., Any], document: Callable[..., Any], bolt_folder: Path, tmp_path: Path
) -> None:
    """The same series, once by way of the file and once directly: the same model to the last bit."""
    file = tmp_path / "moments.safetensors"
    result = cli("calibrate", bolt_folder, *SET, "--out", file)
    assert result.exit_code == 0, result.stderr
    assert "20 series" in result.stdout
    cells = {words[0]: words[1:4] for words in map(str.split, result.stdout.splitlines()) if len(words) > 6}
    assert cells["encoder"][::2] == ["12", "9.00"]
    assert cells["memory"][::2] == ["6", "9.00"]
    assert cells["decoder"] == ["24", "20", "1.00"]
    warnings = [line for line in result.stderr.splitlines() if line.startswith("warning")]
    assert [line.split()[1] for line in warnings] == [
        "output_patch_embedding:",
        "decoder:",
    ]
    document("compress", bolt_folder, *JOINT, "--calibration", file, "--out", tmp_path / "saved")
    document("compress", bolt_folder, *JOINT, *SET, "--out", tmp_path / "direct")
    assert weights(tmp_path / "saved") == weights(tmp_path / "direct")
    other = shutil.copy(file, tmp_path / "moments.bin")  # told by what is in it
    found = document("compress", bolt_folder, *JOINT, "--calibration", other, "--out", tmp_path / "renamed")
    assert weights(tmp_path / "renamed") == weights(tmp_path / "saved")
    assert found["calibration"] == "kernelsynth:20"


def test_the_document(document: Callable[..., Any], bolt_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    found = document("calibrate", bolt_folder, "--calibration", "kernelsynth:3", "--seed", 7, "--out", file)
    assert found["schema"] == "rankscope/calibrate@1"
    assert (found["series"], found["seed"], found["out"], found["batch_size"]) == (3, 7, str(file), 16)
    assert {"name", "stack", "width", "ranks", "tokens", "effective_rank", "shown", "matrices"} <= set(
        found["streams"][0]
    )
    assert any("use at least 24 series" in note for note in found["notes"]), found["notes"]


def test_the_partners_of_a_matrix_and_the_mlp(document: Callable[..., Any], bolt_folder: Path, tmp_path: Path) -> None:
    some = document("calibrate", bolt_folder, *SET, "--sites", "q,encoder", "--out", tmp_path / "q.safetensors")
    assert sum(len(stream["matrices"]) for stream in some["streams"]) == 2 * 4
    document("calibrate", bolt_folder, *SET, "--sites", "all", "--out", tmp_path / "all.safetensors")
    how = ("--calibration", tmp_path / "all.safetensors", "--sites", "all", "--out", tmp_path / "small")
    document("compress", bolt_folder, *JOINT, *how)


@pytest.mark.slow
def test_decoders(
    document: Callable[..., Any], refused: Callable[..., str], forecaster_folder: Path, tmp_path: Path
) -> None:
    made = {}
    for decoder in ("teacher", "sampled"):
        file = tmp_path / f"{decoder}.safetensors"
        document("calibrate", forecaster_folder, *SET, "--decoder", decoder, "--out", file)
        document("compress", forecaster_folder, *JOINT, "--calibration", file, "--out", tmp_path / f"{decoder}-saved")
        direct = ("--decoder", decoder, *SET, "--out", tmp_path / f"{decoder}-direct")
        document("compress", forecaster_folder, *JOINT, *direct)
        made[decoder] = weights(tmp_path / f"{decoder}-saved")
        assert made[decoder] == weights(tmp_path / f"{decoder}-direct")
    assert made["teacher"] != made["sampled"]
    how = ("--calibration", tmp_path / "teacher.safetensors", "--decoder", "sampled", "--out", tmp_path / "no")
    assert "made with decoder teacher, not sampled" in refused("compress", forecaster_folder, *JOINT, *how)
    assert not (tmp_path / "no").exists()


def test_what_is_refused(refused: Callable[..., str], bolt_folder: Path, tmp_path: Path, monthly_csv: Path) -> None:
    out = ("--out", tmp_path / "m.safetensors")
    empty = tmp_path / "empty.csv"
    empty.write_text("date,a\n")
    (tmp_path / "none.csv").write_text("")
    for words, part in (
        (("--calibration", ""), "is empty"),
        (("--calibration", "kernelsynth:0"), "at least 1"),
        (("--calibration", empty), "no rows"),
        (("--calibration", tmp_path / "none.csv"), "is empty"),
        (("--calibration", "text:book.txt"), "reads series"),
        (("--device", "gpu"), "device"),
    ):
        assert part in refused("calibrate", bolt_folder, *words, *out), words
        assert not (tmp_path / "m.safetensors").exists()
    assert "no low-rank class" in refused("calibrate", "bundled-patchtst", *out)
    assert "lookup table" in refused("calibrate", "bundled", "--sites", "embedding", *out)
    assert "'.csv' is not known" in refused("calibrate", bolt_folder, *SET, "--out", tmp_path / "m.csv")
    assert "the horizon" in refused("calibrate", "bundled", "--calibration", monthly_csv, *out)


def test_moments_of_another_model(
    cli: Callable[..., Any], refused: Callable[..., str], bolt_folder: Path, chronos_t5_folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "m.safetensors"
    assert cli("calibrate", bolt_folder, *SET, "--out", file).exit_code == 0
    line = refused("compress", chronos_t5_folder, *JOINT, "--calibration", file, "--out", tmp_path / "small")
    assert f"belongs to {bolt_folder}" in line


@pytest.mark.slow
def test_an_existing_file_is_kept_until_the_new_one_is_whole(
    cli: Callable[..., Any], refused: Callable[..., str], bolt_folder: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    file = tmp_path / "m.safetensors"
    assert cli("calibrate", bolt_folder, *SET, "--out", file).exit_code == 0
    before = file.read_bytes()
    assert "exists already" in refused("calibrate", bolt_folder, *SET, "--out", file)
    again = cli("calibrate", bolt_folder, *SET, "--out", file, "--resume")  # finished: read back
    assert again.exit_code == 0
    assert file.read_bytes() == before
    assert "another batch_size (16, not 3)" in refused(
        "calibrate", bolt_folder, *SET, "--batch-size", 3, "--out", file, "--resume"
    )
    other = ("calibrate", bolt_folder, *SET, "--batch-size", 1, "--seed", 9, "--out", file, "--force")
    with monkeypatch.context() as broken:
        _stop_at(broken, 17)
        assert cli(*other).exit_code == 130
    assert file.read_bytes() == before
    assert "go on with --resume, or start anew with --force" in refused(*other[:-1])
    assert cli(*other[:-1], "--resume").exit_code == 0
    assert load_calibration(file).settings.seed == 9
    assert not (tmp_path / "m.safetensors.run").exists()


def _stop_at(monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    import rankscope.compress.calibration.collect as home

    whole, count = home.pass_inputs, 0

    def counting(*args: Any) -> Any:
        nonlocal count
        count += 1
        if count == calls:
            raise KeyboardInterrupt
        return whole(*args)

    monkeypatch.setattr(home, "pass_inputs", counting)


SLOW = """
import sys, time
from pathlib import Path
import rankscope.compress.calibration.collect as home
home.SAVE_SECONDS, home.SAVING = 0.0, 0
whole, calls = home.pass_inputs, 0
def slow(*args):
    global calls
    calls += 1
    if calls > 10:
        Path("calibrating").touch()
        time.sleep(60)
    return whole(*args)
home.pass_inputs = slow
from rankscope_cli.main import main
main()
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_with_resume(cli: Callable[..., Any], bolt_folder: Path, tmp_path: Path) -> None:
    """SIGKILL after ten batches of twenty: they are on disk, and the same bits come out."""
    how = ["calibrate", str(bolt_folder), *SET, "--batch-size", "1", "--out", "m.safetensors"]
    child = subprocess.Popen([sys.executable, "-c", SLOW, *how], cwd=tmp_path, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 300
    while not (tmp_path / "calibrating").exists():
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    file = tmp_path / "m.safetensors"
    assert not file.exists()
    straight = tmp_path / "straight.safetensors"
    assert cli(*how[:-1], straight).exit_code == 0
    assert cli(*how[:-1], file, "--resume").exit_code == 0
    left, right = load_calibration(file), load_calibration(straight)
    assert left.settings == right.settings
    for stream, moments in left.streams.items():
        assert all(torch.equal(getattr(moments, part), getattr(right.streams[stream], part)) for part in PARTS)


def test_a_stopped_run_says_how_to_go_on(
    cli: Callable[..., Any], bolt_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stop_at(monkeypatch, 12)
    result = cli("calibrate", bolt_folder, *SET, "--batch-size", "1", "--out", tmp_path / "m.safetensors")
    assert result.exit_code == 130
    assert "rerun with --resume to continue" in result.stderr.splitlines()[-2]
    assert result.stdout == ""


@pytest.mark.slow
def test_text(document: Callable[..., Any], t5_folder: Path, tmp_path: Path) -> None:
    """From token ids to a narrower text model, by name and by saved moments, with its own probe."""
    ids = tmp_path / "ids.txt"
    ids.write_text(" ".join(str(2 + i * i % 61) for i in range(3000)))
    name = f"text:{ids}:12"
    found = document("calibrate", t5_folder, "--calibration", name, "--out", tmp_path / "m.safetensors")
    assert (found["corpus"], found["series"]) == (name, 12)
    made = {}
    for rule in ("energy", "sensitivity"):
        how = (*JOINT[:4], "--allocation", rule, "--calibration", name)
        result = document("compress", t5_folder, *how, "--out", tmp_path / rule)
        assert (result["allocation"], result["calibration"]) == (rule, name)
        made[rule] = weights(tmp_path / rule)
    assert made["energy"] != made["sensitivity"]
    saved = ("--allocation", "sensitivity", "--calibration", tmp_path / "m.safetensors", "--probe", f"text:{ids}")
    document("compress", t5_folder, *JOINT[:4], *saved, "--out", tmp_path / "saved")
    assert weights(tmp_path / "saved") == made["sensitivity"]  # windows of the same text, where nothing is said
    document("compress", t5_folder, "--method", "whitened", *JOINT[2:], "--calibration", name, "--out", tmp_path / "w")


def test_what_a_text_model_lacks(refused: Callable[..., str], cli: Any, t5_folder: Path, tmp_path: Path) -> None:
    ids = tmp_path / "ids.txt"
    ids.write_text(" ".join(str(2 + i % 60) for i in range(3000)))
    out = ("--attention-ratio", "0.6", "--method", "joint", "--out", tmp_path / "small")
    assert "text:FILE" in refused("compress", t5_folder, *out)
    assert "reads text" in refused("compress", t5_folder, *out, "--calibration", "mixture:4")
    assert "has no tokenizer" in refused("compress", t5_folder, *out, "--calibration", f"text:{_book(tmp_path)}")
    moments = tmp_path / "m.safetensors"
    assert cli("calibrate", t5_folder, "--calibration", f"text:{ids}:4", "--out", moments).exit_code == 0
    how = ("--calibration", moments, "--allocation", "sensitivity")  # probed with the text that the moments name
    probed = cli("compress", t5_folder, *out[:-1], tmp_path / "probed", *how)
    assert probed.exit_code == 0, probed.stderr
    assert "draws no sample paths" in refused(
        "compress", t5_folder, *out, "--calibration", f"text:{ids}:4", "--decoder", "sampled"
    )
    result = cli("compress", t5_folder, *out, "--calibration", f"text:{ids}:4")
    assert result.exit_code == 0
    assert "rankscope table2" in result.stdout
    assert json.loads((tmp_path / "small" / "compress.json").read_text())["allocation"] == "energy"


def _book(folder: Path) -> Path:
    file = folder / "book.txt"
    file.write_text("It was the best of times, it was the worst of times. " * 100)
    return file
