"""``rankscope synth``: what it writes, prints and refuses, and that ``pretrain`` reads it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TINY = ("--kind", "structured", "--n", "1_2", "--length", "24", "--shard-size", "5", "--workers", "1")


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_shards_are_written_checked_and_replaced_on_demand(
    cli: Any, document: Callable[..., dict[str, Any]], refused: Callable[..., str]
) -> None:
    report = document("synth", *TINY, "--out", "shards")
    assert report["schema"] == "rankscope/synth@1"
    assert (report["series"], report["shards"], report["written"], report["left_out"]) == (12, 3, 12, {})
    assert report["bytes"] == sum(path.stat().st_size for path in Path("shards").glob("*.arrow"))
    assert report["series_per_second"] > 0
    assert "--force" in refused("synth", *TINY, "--out", "shards")
    assert document("synth", *TINY, "--out", "shards", "--resume")["written"] == 0
    assert "seed 0, not 1" in refused("synth", *TINY, "--seed", "1", "--out", "shards", "--resume")
    check = document("synth", "--verify", "--out", "shards")
    assert check == {
        "schema": "rankscope/shards-check@1",
        "folder": "shards",
        "shards": 3,
        "series": 12,
        "damaged": [],
    }
    file = Path("shards/shard-00001.arrow")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    result = cli("synth", "--verify", "--out", "shards")
    assert result.exit_code == 1
    assert "shard-00001.arrow is damaged" in result.stdout
    result = cli("synth", *TINY, "--format", "parquet", "--out", "shards", "--force")
    assert result.exit_code == 0
    assert result.stdout.startswith("shards: 12 series in 3 shards, ")
    assert "series/s" in result.stdout
    assert sorted(path.name for path in Path("shards").iterdir()) == [
        *(f"shard-{k:05d}.parquet" for k in range(3)),
        "shards.index.json",
    ]
    assert [path.name for path in Path().iterdir()] == ["shards"]


def test_series_of_files_are_mixed_in_and_those_left_out_are_counted(cli: Any) -> None:
    rows = {"a": list(range(40)), "b": [1, 2], "c": [3] * 40}
    Path("own.jsonl").write_text("".join(f'{{"item_id": "{k}", "target": {v}}}\n' for k, v in rows.items()))
    few = ("--kind", "mixture", "-n", "6", "--length", "24", "--input", "own.jsonl", "--workers", "1")
    result = cli("synth", *few, "--out", "shards")
    assert result.exit_code == 0, result.output
    assert "skipped 1 short series of the files" in result.stdout
    assert "skipped 1 constant series of the files" in result.stdout


@pytest.mark.parametrize(
    ("args", "part"),
    [
        ((), "--kind and --n"),
        (("--kind", "structured", "--n", "0"), "--n"),
        (("--kind", "structured", "--n", "1e6"), "--n"),
        (("--kind", "structured", "--n", "3", "--length", "10", "--min-length", "11"), "min_length"),
        (("--kind", "structured", "--n", "3", "--device", "cuda"), "--device cuda"),
        (("--kind", "kernelsynth", "--n", "3", "--input", "own.csv"), "tsmixup or mixture"),
        (("--kind", "tsmixup", "--n", "3", "--input-share", "0.5"), "--input-share requires --input FILE"),
        (("--kind", "tsmixup", "--n", "3", "--input", "own.csv"), "own.csv"),
        (("--kind", "tsmixup", "--n", "3", "--input", "short.csv"), "longest has 3"),
        (("--verify",), "not a folder of shards"),
        (("--verify", "--kind", "structured"), "--kind has no effect with --verify"),
        (("--verify", "--n", "3"), "--n has no effect with --verify"),
        (("--verify", "--resume"), "--resume has no effect with --verify"),
        (("--verify", "--length", "7"), "--length has no effect with --verify"),
        (("--verify", "--input", "x"), "--input has no effect with --verify"),
        (("--verify", "--seed", "4"), "--seed has no effect with --verify"),
        (("--verify", "--workers", "3"), "--workers has no effect with --verify"),
        (("--verify", "--id-column", "x"), "--id-column has no effect with --verify"),
        (("--verify", "--force"), "--force has no effect with --verify"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(
    refused: Callable[..., str], args: tuple[str, ...], part: str
) -> None:
    Path("short.csv").write_text("a\n1\n2\n3\n")
    assert part in refused("synth", *args, "--out", "out")
    assert [path.name for path in Path().iterdir()] == ["short.csv"]


def test_an_unfinished_run_is_not_thrown_away(
    cli: Any, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("rankscope.train.data.shard_writer.publish_folder", kill)
        assert cli("synth", *TINY, "--out", "out").exit_code == 130
    before = {path: path.read_bytes() for path in Path("out.partial/shards").glob("shard-*")}
    assert len(before) == 3
    assert "--resume" in refused("synth", *TINY, "--out", "out")
    assert {path: path.read_bytes() for path in Path("out.partial/shards").glob("shard-*")} == before


@pytest.mark.slow
def test_ctrl_c_keeps_finished_shards_and_says_how_to_go_on(group_ends: Callable[[int], bool]) -> None:
    many = ("--kind", "structured", "--n", "100_000", "--shard-size", "50", "--workers", "2", "--out", "out")
    script = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from rankscope_cli.main import main\nif __name__ == '__main__': main()\n"
    )
    Path("script.py").write_text(script)
    command = [sys.executable, "script.py", "synth", *many]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while not list(Path().glob("out.partial/shards/shard-*")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert "--resume" in err
    assert "Traceback" not in err
    assert err.splitlines()[-1] == "interrupted."
    assert not Path("out").exists()
    assert list(Path().glob("out.partial/shards/shard-*"))
    assert group_ends(process.pid), "a worker is still there"


@pytest.mark.slow
def test_a_run_on_shards_names_a_damaged_file_and_leaves_it_out_on_demand(
    cli: Any, document: Callable[..., dict[str, Any]], refused: Callable[..., str]
) -> None:
    document("synth", *TINY, "--out", "shards")
    Path("run.yaml").write_text(
        "model: {d_model: 8, d_kv: 4, d_ff: 8, num_layers: 1, num_decoder_layers: 1, num_heads: 2, n_tokens: 32}\n"
        "context: 16\nhorizon: 4\nshards: shards\nmax_steps: 2\nbatch_size: 2\nwarmup_steps: 0\nlog_steps: 1\n"
    )
    assert document("pretrain", "run.yaml", "--out", "model", "--device", "cpu")["steps"] == 2
    os.truncate("shards/shard-00002.arrow", 100)
    line = refused("pretrain", "run.yaml", "--out", "again", "--device", "cpu")
    assert "shard-00002.arrow" in line
    assert "--skip-damaged" in line
    assert not Path("again").exists()
    report = document("pretrain", "run.yaml", "--out", "again", "--device", "cpu", "--skip-damaged")
    assert report["steps"] == 2
