"""Shards: the same bytes however they are made, readable elsewhere, and damage is named."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.choices import SHARD_FORMATS
from rankscope.errors import DataError, OptionError, OutputError, RankscopeError
from rankscope.io import codec
from rankscope.io.run_store import locked
from rankscope.train.data.shard_files import INDEX, open_shard, read_index
from rankscope.train.data.shard_writer import write_shards
from rankscope.train.data.shards import Shards, open_shards
from rankscope.train.data.synthesis import Synthesis, shard_series

SMALL = {"kind": "kernelsynth", "n": 50, "length": 24, "min_length": 10, "seed": 3, "shard_size": 20}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def expected(spec: Synthesis) -> list[np.ndarray]:
    """The series themselves, from the generator: what the files must hold."""
    found = []
    for shard in range(spec.shards):
        series, lengths = shard_series(spec, shard, None)
        found += [row[spec.length - length :] for row, length in zip(series, lengths, strict=True)]
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One finished folder of each format, not to be changed."""
    home = tmp_path_factory.mktemp("shards")
    for format_ in SHARD_FORMATS:
        write_shards(Synthesis(**SMALL, format=format_), home / format_, workers=1)
    return {format_: home / format_ for format_ in SHARD_FORMATS}


@pytest.fixture(params=SHARD_FORMATS)
def folder(request: pytest.FixtureRequest, whole: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of a finished folder."""
    import shutil

    return Path(shutil.copytree(whole[request.param], tmp_path / "copy"))


def test_the_files_hold_the_generated_series(folder: Path) -> None:
    shards = open_shards(folder)
    wanted = expected(shards.index.synthesis)
    assert len(shards) == len(wanted) == 50
    assert [file.rows for file in shards.files] == [20, 20, 10]
    assert shards.shortest == min(len(series) for series in wanted)
    for number, series in enumerate(wanted):
        assert shards.series(number).dtype == np.float32
        assert np.array_equal(shards.series(number), series)


def test_the_bytes_do_not_depend_on_the_number_of_workers(whole: dict[str, Path], tmp_path: Path) -> None:
    told: list[tuple[int, int, str]] = []
    report = write_shards(Synthesis(**SMALL), tmp_path / "two", workers=2, progress=lambda *said: told.append(said))
    assert contents(tmp_path / "two") == contents(whole["arrow"])
    assert told[-1][:2] == (50, 50)
    assert "series/s" in told[-1][2]
    assert codec.plain(report)["schema"] == "rankscope/synth@1"
    assert (report.series, report.shards, report.written) == (50, 3, 50)
    assert report.bytes == sum(path.stat().st_size for path in (tmp_path / "two").glob("shard-*"))
    assert list(tmp_path.iterdir()) == [tmp_path / "two"]


def test_gluonts_reads_the_folder(folder: Path) -> None:
    from gluonts.dataset.common import FileDataset

    wanted = expected(read_index(folder).synthesis)
    entries = {entry["item_id"]: entry for entry in FileDataset(folder, freq="h")}
    assert len(entries) == 50
    for number, series in enumerate(wanted):
        entry = entries[f"kernelsynth-{number:09d}"]
        assert np.array_equal(entry["target"], series)
        assert str(entry["start"]) == "2000-01-01 00:00"


def test_datasets_reads_the_files(folder: Path, tmp_path: Path) -> None:
    import datasets

    format_ = read_index(folder).synthesis.format
    files = sorted(str(path) for path in folder.glob(f"shard-*.{format_}"))
    found = datasets.load_dataset(format_, data_files=files, split="train", cache_dir=str(tmp_path / "cache"))
    wanted = expected(read_index(folder).synthesis)
    assert found.column_names == ["item_id", "start", "target"]
    assert all(np.array_equal(np.float32(row["target"]), series) for row, series in zip(found, wanted, strict=True))


def test_our_own_reader_of_user_files_reads_a_shard(folder: Path) -> None:
    from rankscope.series import read_series

    format_ = read_index(folder).synthesis.format
    first = read_series(folder / f"shard-00001.{format_}", dated=False)[0]
    assert first.item_id == "kernelsynth-000000020"
    assert np.array_equal(first.target.astype(np.float32), expected(read_index(folder).synthesis)[20])


def test_draws_have_equal_odds_and_survive_pickling(folder: Path) -> None:
    shards = open_shards(folder)
    index = {series.tobytes(): number for number, series in enumerate(expected(shards.index.synthesis))}
    drawn = [index[s.tobytes()] for b in range(200) for s in shards.draw(np.random.default_rng(b), 100)]
    counts = np.bincount(drawn, minlength=50)
    # Arrow: independent draws. Parquet: up to 32 of a file's only row group at a time; its variance is that of groups.
    slack = 5 if shards.index.synthesis.format == "arrow" else 5 * np.sqrt(1 + 31 * (20 / 50))
    assert (np.abs(counts - 400) < slack * np.sqrt(400)).all()
    sent = pickle.loads(pickle.dumps(shards))
    assert isinstance(sent, Shards)
    first, second = (s.draw(np.random.default_rng(1), 5) for s in (shards, sent))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def break_file(folder: Path, how: str) -> str:
    file = sorted(folder.glob("shard-*"))[1]
    data = file.read_bytes()
    if how == "missing":
        file.unlink()
    elif how == "other rows":
        index = json.loads((folder / INDEX).read_text())
        other = sorted(folder.glob("shard-*"))[2].read_bytes()
        file.write_bytes(other)
        index["files"][1]["bytes"] = len(other)
        (folder / INDEX).write_text(json.dumps(index))
    else:
        middle = len(data) // 2
        file.write_bytes(
            {
                "truncated": data[:-10],
                "hole": data[:200] + data[264:],  # before the footer
                "empty": b"",
                "no footer": data[:-10] + b"0123456789",
                "other format": b"x" * len(data),
                "flipped bit": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
            }[how]
        )
    return file.name


@pytest.mark.parametrize("how", ["missing", "truncated", "hole", "empty", "no footer", "other format", "other rows"])
def test_a_damaged_file_is_named_and_skipped_only_on_demand(folder: Path, how: str) -> None:
    name = break_file(folder, how)
    with pytest.raises(DataError, match=name) as caught:
        open_shards(folder)
    assert "--skip-damaged" in str(caught.value)
    assert "\n" not in str(caught.value)
    shards = open_shards(folder, skip_damaged=True)
    assert len(shards.damaged) == 1
    assert name in shards.damaged[0]
    assert len(shards) == 50 - 20
    wanted = expected(shards.index.synthesis)
    assert np.array_equal(shards.series(20), wanted[40])


def test_a_flipped_bit_is_found_by_verifying(folder: Path) -> None:
    assert open_shards(folder, verify=True).damaged == ()
    name = break_file(folder, "flipped bit")
    assert len(open_shards(folder)) == 50
    with pytest.raises(DataError, match=f"{name} is damaged: its checksum"):
        open_shards(folder, verify=True)
    assert len(open_shards(folder, verify=True, skip_damaged=True).damaged) == 1


@pytest.mark.parametrize("suffix", SHARD_FORMATS)
@pytest.mark.parametrize(
    "columns", [{"item_id": ["a"], "value": [1.0]}, {"item_id": ["a"], "start": [0], "target": [1.0]}]
)
def test_other_columns_are_refused(tmp_path: Path, write_table: Callable[..., Path], suffix: str, columns: Any) -> None:
    import pandas as pd

    file = write_table(pd.DataFrame(columns), tmp_path / f"x.{suffix}")
    with pytest.raises(DataError, match=rf"x\.{suffix} is damaged: its columns are {', '.join(columns)}, not"):
        open_shard(file)


@pytest.mark.parametrize("how", ["two offsets swapped", "more values than there are"])
def test_damaged_offsets_of_an_arrow_file_are_an_error(whole: dict[str, Path], tmp_path: Path, how: str) -> None:
    values, begins = open_shard(whole["arrow"] / "shard-00000.arrow").group(0)
    size, offsets = np.array([len(values), 0]), begins.copy()  # a record of Arrow: values, and how many are missing
    if how == "two offsets swapped":
        offsets[[3, 4]] = offsets[[4, 3]]
        assert offsets[3] - offsets[2] >= SMALL["min_length"]  # the series before them would be read, too long
    else:
        offsets[-1] = 2**31 - 1
        size[0] = 2**31
    data = (whole["arrow"] / "shard-00000.arrow").read_bytes()
    for old, new in ((begins, offsets), (np.array([len(values), 0]), size)):
        assert old.tobytes() in data
        data = data.replace(old.tobytes(), new.tobytes())
    (tmp_path / "x.arrow").write_bytes(data)
    with pytest.raises(DataError, match=r"x\.arrow is damaged: ") as caught:
        open_shard(tmp_path / "x.arrow").group(0)
    assert "\n" not in str(caught.value)


def test_a_damaged_row_group_is_an_error(whole: dict[str, Path], tmp_path: Path) -> None:
    data = (whole["parquet"] / "shard-00000.parquet").read_bytes()
    (tmp_path / "x.parquet").write_bytes(data[:4] + b"x" * (len(data) // 2) + data[4 + len(data) // 2 :])
    shard = open_shard(tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"x\.parquet is damaged: "):
        shard.group(0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "has no shards.index.json"),
        ("{", "is damaged"),
        ('{"schema": "rankscope/shards@9"}', "rankscope/shards@9"),
        ('{"schema": "rankscope/shards@1"}', "is damaged"),
        ("[]", "is damaged"),
    ],
)
def test_a_folder_without_a_proper_index_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    (tmp_path / "x").mkdir()
    if text is not None:
        (tmp_path / "x" / INDEX).write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        open_shards(tmp_path / "x")
    assert "\n" not in str(caught.value)


def test_an_index_may_not_point_out_of_its_folder(folder: Path) -> None:
    index = json.loads((folder / INDEX).read_text())
    index["files"][0]["name"] = "../copy/" + index["files"][0]["name"]
    (folder / INDEX).write_text(json.dumps(index))
    with pytest.raises(DataError, match="leaves the folder"):
        open_shards(folder)


def test_missing_unfinished_and_wholly_damaged_folders_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder of shards"):
        open_shards(tmp_path / "nowhere")
    index = json.loads((folder / INDEX).read_text())
    (folder / INDEX).write_text(json.dumps({**index, "files": index["files"][:2]}))
    with pytest.raises(DataError, match="not finished"):
        open_shards(folder)
    (folder / INDEX).write_text(json.dumps(index))
    for file in folder.glob("shard-*"):
        file.unlink()
    with pytest.raises(DataError, match="no usable shard \\(3 damaged\\)"):
        open_shards(folder, skip_damaged=True)


LONG = {"kind": "structured", "n": 2000, "shard_size": 50, "length": 1024}
KILLED = f"""
import sys
from rankscope.train import Synthesis, write_shards
if __name__ == "__main__":
    write_shards(Synthesis(**{LONG!r}), sys.argv[1], workers=2)
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_where_it_was_and_leaves_no_process(
    tmp_path: Path, group_ends: Callable[[int], bool]
) -> None:
    script = tmp_path / "script.py"
    script.write_text(KILLED)
    partial = tmp_path / "out.partial"
    process = subprocess.Popen([sys.executable, str(script), str(tmp_path / "out")], start_new_session=True)
    deadline = time.monotonic() + 120
    while len(list(partial.glob("items/shard-*.json"))) < 3:
        assert process.poll() is None, "it was over before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert group_ends(process.pid), "a worker outlived its parent: they are to notice by themselves"
    assert not (tmp_path / "out").exists()
    records = [json.loads(file.read_text())["name"] for file in partial.glob("items/shard-*.json")]
    kept = {name: (partial / "shards" / name).stat().st_mtime_ns for name in records}
    assert 3 <= len(kept) < 40
    with pytest.raises(OutputError, match="--resume"):
        write_shards(Synthesis(**LONG), tmp_path / "out", workers=1)
    report = write_shards(Synthesis(**LONG), tmp_path / "out", workers=2, resume=True)
    assert report.written == 2000 - 50 * len(kept)
    assert {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in kept} == kept
    assert not partial.exists()
    shards = open_shards(tmp_path / "out", verify=True)
    for number, series in enumerate(expected(Synthesis(**LONG))):
        assert np.array_equal(shards.series(number), series)


@pytest.mark.slow
def test_a_script_without_the_guard_of_its_main_part_is_told_so(tmp_path: Path) -> None:
    call = "write_shards(Synthesis('structured', 4, 48), 'out', workers=1)"
    for guard in ("", "if __name__ == '__main__': "):
        (tmp_path / "script.py").write_text(f"from rankscope.train import Synthesis, write_shards\n{guard}{call}\n")
        done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == (0 if guard else 1)
        assert guard or "below: if __name__ == '__main__'." in done.stderr.splitlines()[-1]
    assert (tmp_path / "out").is_dir()


@pytest.mark.slow
def test_a_killed_worker_is_an_error_that_keeps_what_is_finished(tmp_path: Path) -> None:
    spec = Synthesis("structured", 4000, 256, shard_size=50)

    def kill(done: int, total: int, what: str) -> None:
        if done > 500:  # ten shards are made, and the first of them known to be
            for child in multiprocessing.active_children():  # none when progress is told once more after the kill
                child.kill()

    with pytest.raises(RankscopeError, match="--resume"):
        write_shards(spec, tmp_path / "out", workers=1, progress=kill)
    assert not (tmp_path / "out").exists()
    assert list(tmp_path.glob("out.partial/items/shard-*.json"))


def stopped(out: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Path:
    """Leave a run as a kill at its end does, its shards not yet published."""

    def kill(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("rankscope.train.data.shard_writer.publish_folder", kill)
        with pytest.raises(KeyboardInterrupt):
            write_shards(Synthesis(**SMALL), out, workers=1, **options)
    return out.with_name(f"{out.name}.partial")


def test_resuming_looks_at_what_is_there(
    whole: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial = stopped(tmp_path / "out", monkeypatch)
    (partial / "shards" / "shard-00001.arrow").write_bytes(b"half")
    before = contents(partial / "shards")
    (partial / "shards" / ".shard-00002.arrow.a1b2c3d4.partial").mkdir()
    with pytest.raises(OutputError, match="seed 3, not 4"):
        write_shards(Synthesis(**{**SMALL, "seed": 4}), tmp_path / "out", workers=1, resume=True)
    with pytest.raises(OutputError, match="--resume"):
        write_shards(Synthesis(**SMALL), tmp_path / "out", workers=1)
    with locked(partial / ".lock", "held"), pytest.raises(OutputError, match="by another process"):
        write_shards(Synthesis(**SMALL), tmp_path / "out", workers=1, resume=True)
    assert contents(partial / "shards") == before
    report = write_shards(Synthesis(**SMALL), tmp_path / "out", workers=1, resume=True)
    assert report.written == 20
    assert contents(tmp_path / "out") == contents(whole["arrow"])
    again = write_shards(Synthesis(**SMALL), tmp_path / "out", workers=1, resume=True)
    assert (again.written, again.series) == (0, 50)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


@pytest.mark.slow
def test_a_run_that_replaces_goes_on_without_being_told_again(
    whole: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shards(Synthesis(**{**SMALL, "n": 3}), tmp_path / "out", workers=1)
    stopped(tmp_path / "out", monkeypatch, force=True)
    assert len(open_shards(tmp_path / "out")) == 3
    assert write_shards(Synthesis(**SMALL), tmp_path / "out", workers=1, resume=True).written == 0
    assert contents(tmp_path / "out") == contents(whole["arrow"])
    with monkeypatch.context() as patch:  # killed when its shards were published
        patch.setattr("rankscope.io.run_store.RunStore.discard", lambda self: None)
        write_shards(Synthesis(**SMALL), tmp_path / "out", workers=1, force=True)
    assert (tmp_path / "out.partial").exists()
    assert write_shards(Synthesis(**SMALL), tmp_path / "out", workers=1, resume=True).written == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_shards_of_another_corpus_do_not_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(tmp_path / "out", monkeypatch)
    monkeypatch.setattr("rankscope.train.data.shard_writer.CORPUS_VERSION", 9)
    with pytest.raises(OutputError, match=r"begun with corpus_version \d, not 9: go on as it was begun") as caught:
        write_shards(Synthesis(**SMALL), tmp_path / "out", workers=1, resume=True)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_an_existing_folder_is_replaced_only_with_force_and_only_at_the_end(tmp_path: Path) -> None:
    spec = Synthesis("structured", 4, 8)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(OutputError, match="exists already"):
        write_shards(spec, tmp_path / "out", workers=1)
    with pytest.raises(OutputError, match="nothing to resume"):
        write_shards(spec, tmp_path / "out", workers=1, resume=True)
    bad = Synthesis("tsmixup", 4, 8, files=(str(tmp_path / "none.csv"),), file_share=0.5)
    with pytest.raises(DataError, match=r"none.csv"):
        write_shards(bad, tmp_path / "out", workers=1, force=True)
    with pytest.raises(OutputError, match=r"holds 'mine\.txt' and no checkpoint or shards"):
        write_shards(spec, tmp_path / "out", workers=1, force=True)
    assert contents(tmp_path / "out") == {"mine.txt": b"mine"}
    (tmp_path / "out" / "mine.txt").unlink()
    write_shards(spec, tmp_path / "out", workers=1, force=True)
    write_shards(spec, tmp_path / "out", workers=1, force=True)
    assert len(open_shards(tmp_path / "out")) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["user.jsonl", "."])
def test_shards_of_user_files_count_what_is_left_out_and_notice_changes(tmp_path: Path, name: str) -> None:
    (tmp_path / "data").mkdir()
    file = tmp_path / "data" / "user.jsonl"
    rows = {"a": list(range(30)), "b": [7] * 30, "c": [1, 2], "d": [5, 1] * 15}
    file.write_text("".join(f'{{"item_id": "{name}", "target": {values}}}\n' for name, values in rows.items()))
    spec = Synthesis("tsmixup", 12, 20, shard_size=12, files=(str(file.parent / name),), file_share=1.0)
    report = write_shards(spec, tmp_path / "out", workers=1)
    assert report.left_out == {"short": 1, "constant": 1}
    file.write_text(file.read_text().replace("29]", "30]"))
    with pytest.raises(OutputError, match=r"data(/user.jsonl)? has changed"):
        write_shards(spec, tmp_path / "out", workers=1, resume=True)


def test_a_shard_must_fit_into_a_file() -> None:
    with pytest.raises(OptionError, match="lower shard_size"):
        Synthesis("structured", 10, 2**20, shard_size=2**12)
