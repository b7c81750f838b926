"""Files of a sweep are damaged: one line that names the file and says what to do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankscope.errors import DataError, OutputError
from rankscope.train.sweeps import Engine, SweepSpec, run_sweep
from rankscope.train.sweeps.points import SweepFolder

CPU = Engine(device="cpu")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, write_sweep: Callable[..., SweepSpec]) -> tuple[SweepSpec, Path]:
    """A finished sweep of one point, and its folder."""
    folder = tmp_path_factory.mktemp("swept")
    spec = write_sweep(folder, points={"only": {}}, base={"max_steps": 2})
    assert run_sweep(spec, folder / "out", engine=CPU).points[0].state == "done"
    return spec, folder / "out"


RECORDS = {
    "truncated": '{"report": {"steps": 2, "lo',
    "empty": "",
    "a list": "[1]",
    "no report": "{}",
    "a report that is a list": '{"report": []}',
    "no steps": '{"report": {"schema": "rankscope/pretrain@1", "folder": "x"}}',
    "text for steps": '{"report": {"schema": "rankscope/pretrain@1", "folder": "x", "steps": "x", "loss": 1.0, '
    '"seconds": 1.0, "parameters": 1}}',
}


@pytest.mark.parametrize("damage", RECORDS)
def test_the_record_of_a_point(swept: tuple[SweepSpec, Path], tmp_path: Path, damage: str) -> None:
    spec, out = swept[0], shutil.copytree(swept[1], tmp_path / "out")
    folder = SweepFolder(out)
    row = json.loads(folder.store.path("only").read_text())
    folder.store.path("only").write_text(json.dumps(row | {"state": "begun"}))
    file = folder.checkpoint("only") / "pretrain.json"
    file.write_text(RECORDS[damage])
    (found,) = run_sweep(spec, out, engine=CPU).points
    assert found.state == "failed"
    assert found.error.startswith(str(file))
    assert found.error.endswith(f"Delete {file.parent}, and the point is trained anew.")
    shutil.rmtree(file.parent)
    assert run_sweep(spec, out, engine=CPU).points[0].state == "done"


@pytest.mark.parametrize("name", [None, 5, ["toy"]])
def test_a_report_without_its_name(swept: tuple[SweepSpec, Path], tmp_path: Path, name: Any) -> None:
    spec, out = swept[0], shutil.copytree(swept[1], tmp_path / "out")
    report = json.loads((out / "sweep.json").read_text())
    del report["name"]
    (out / "sweep.json").write_text(json.dumps(report | ({} if name is None else {"name": name})))
    with pytest.raises(OutputError, match=r"sweep\.json is damaged: delete it") as caught:
        run_sweep(spec, out, engine=CPU)
    assert "\n" not in str(caught.value)


def test_ranks_without_the_mean_of_all(swept: tuple[SweepSpec, Path], tmp_path: Path) -> None:
    spec, out = swept[0], shutil.copytree(swept[1], tmp_path / "out")
    file = SweepFolder(out).store.path("only")
    row = json.loads(file.read_text())
    row["ranks"]["mean_ranks"] = {}
    file.write_text(json.dumps(row))
    with pytest.raises(
        DataError, match=r"mean_ranks has no group 'all'\. Delete the file, and it is made anew"
    ) as caught:
        run_sweep(spec, out, engine=CPU)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)
