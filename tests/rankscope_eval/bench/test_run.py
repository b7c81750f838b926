"""Reports of a bench; children answer, fail and die as they should."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rankscope import load_pipeline
from rankscope.compress import CompressOptions, compress
from rankscope.errors import OptionError, RankscopeError
from rankscope.io import codec
from rankscope_eval.bench import Case, Settings, read_case, run_bench
from rankscope_eval.bench.case import LOCAL, checked
from rankscope_eval.bench.children import CaseError, Child
from rankscope_eval.bench.counts import cache_bytes, phases
from rankscope_eval.bench.turns import Spread, ratios
from rankscope_eval.bench.worker import local, opened


def test_a_forecast_is_timed() -> None:
    settings = Settings(batches=(2,), num_samples=2, horizon=2, context=16, rounds=2, threads=1)
    (row,) = run_bench(["naive"], settings).rows
    assert (row.label, row.batch, len(row.turns)) == ("naive:local", 2, 2)
    assert 0 < row.seconds.min <= row.seconds.median <= row.seconds.max


def test_a_compressed_chronos_2_is_timed(chronos2_folder: Path, tmp_path: Path) -> None:
    compress(chronos2_folder, CompressOptions(storage="int8"), out=tmp_path / "int8")
    forecast, *_ = opened(Case(str(tmp_path / "int8"), "stock", batch=2, num_samples=1, horizon=2, context=16))
    assert len(forecast()) == 2


@pytest.mark.slow
def test_batch_sizes_that_are_timed_together_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []
    ask = Child.ask

    def watched(self: Child, line: str, timeout: float) -> dict[str, Any]:
        turns.extend([self.case.batch] * (line == "forecast"))
        return ask(self, line, timeout)

    monkeypatch.setattr(Child, "ask", watched)
    settings = Settings(batches=(1, 2), horizon=2, context=16, rounds=2, threads=1)
    apart = run_bench(["naive"], settings)
    assert turns == [1, 1, 2, 2]
    turns.clear()
    together = run_bench(["naive"], replace(settings, together=True))
    assert turns == [1, 2, 2, 1]
    assert [row.batch for row in apart.rows] == [row.batch for row in together.rows] == [1, 2]
    assert [one.batch for one in together.ratios] == [1, 2]


def test_the_context_is_the_models_own_where_that_is_shorter() -> None:
    cases = [
        Case(model, "fast", batch=1, num_samples=1, horizon=1, context=512) for model in ("bundled", "bundled-bolt")
    ]
    assert [opened(case)[2]["context"] for case in cases] == [256, 512]


@pytest.mark.slow
def test_automatic_models_are_fitted_in_a_process_per_core_whose_memory_counts() -> None:
    case = Case("auto-theta", LOCAL, batch=3, context=60, horizon=2, threads=2)
    forecast, beside = local(case, cores=2)
    forecast()
    assert beside() > 0
    alone, nothing = local(case, cores=1)
    assert len(alone()) == 3
    assert nothing() == 0


@pytest.mark.slow
def test_a_report_of_two_runtimes_a_peer_and_a_reference(folder: Any, work_of: Any) -> None:
    model, bolt = str(folder("chronos-t5")), str(folder("chronos-bolt"))
    settings = Settings(batches=(3,), num_samples=2, horizon=4, context=16, rounds=2, threads=1)
    reported: list[tuple[int, int, str]] = []
    report = run_bench(
        [f"{model}:fast:bfloat16", f"{bolt}:stock", "naive"],
        settings,
        baseline=f"{model}:stock:float32",
        progress=lambda *what: reported.append(what),
    )
    rows = {(row.label, row.batch): row for row in report.rows}
    labels = [f"{model}:stock:float32", f"{model}:fast:bfloat16", f"{bolt}:stock", "naive:local"]
    assert list(rows) == [(label, 3) for label in labels]
    stock, fast = rows[labels[0], 3], rows[labels[1], 3]
    assert (stock.runtime, stock.dtype, fast.dtype, rows[labels[2], 3].dtype) == (
        "stock",
        "float32",
        "bfloat16",
        "float32",
    )
    module = load_pipeline(model).inner_model
    assert stock.weight_bytes == sum(one.nbytes for one in module.parameters()) == 2 * fast.weight_bytes
    network, case = work_of(Path(model), batch=3, num_samples=2, horizon=4, context=16)
    assert fast.flops == stock.flops == sum(one.flops for one in phases(network, case))
    assert fast.cache_bytes == cache_bytes(network, case) // 2
    assert stock.roofline_seconds is not None
    assert stock.achieved == stock.roofline_seconds / stock.seconds.median
    assert all(len(row.turns) == 2 and row.seconds == Spread.of(row.turns) for row in report.rows)
    assert all(row.peak_bytes > 0 and row.threads == 1 for row in report.rows)
    assert max(row.loaded_bytes for row in report.rows) < 60e6  # imports are no memory of a toy model
    assert stock.tokens_per_second == 3 * 2 * 4 / stock.seconds.median
    assert rows["naive:local", 3].roofline_seconds is None
    over = {(one.label, one.batch): one for one in report.ratios}
    assert over.keys() == rows.keys()
    assert over[labels[0], 3].seconds == Spread(1.0, 1.0, 1.0)
    assert over[labels[1], 3].seconds == ratios(fast.turns, stock.turns)
    assert {one.dtype for one in report.rates} == {"float32", "bfloat16"}
    document = json.loads(json.dumps(codec.plain(report)))
    assert document["schema"] == "rankscope/bench@1"
    assert len(report.to_frame()) == 4
    assert reported[-1][0] == reported[-1][1]


@pytest.mark.parametrize(("device", "runtime"), [("cpu", "fast"), ("cuda:0", "stock")])
def test_auto_is_the_runtime_that_is_loaded_on_the_device(device: str, runtime: str) -> None:
    assert checked(read_case("bundled"), device).runtime == runtime


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("bundled:fats", "did you mean 'fast'"),
        ("bundled:fast:float23", "did you mean 'float32'"),
        ("bundled:fast:float32:x", "of the form MODEL"),
        ("bundled:", "of the form MODEL"),
        ("naive:fast", "takes no runtime"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, part: str) -> None:
    with pytest.raises(OptionError, match=part):
        read_case(text)


@pytest.mark.parametrize(
    "sizes", [{"batches": ()}, {"batches": (0,)}, {"rounds": 0}, {"horizon": -1}, {"timeout": 0.0}]
)
def test_sizes_below_one_are_refused(sizes: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=r"batch|rounds|horizon|timeout"):
        Settings(**sizes)


def test_models_that_cannot_forecast_are_refused_before_anything_starts(t5_folder: Path, chronos2_folder: Path) -> None:
    for model, part in (
        (str(t5_folder), "cannot forecast with"),
        (f"{chronos2_folder}:fast", "does not support Chronos-2"),
    ):
        with pytest.raises(RankscopeError, match=part):
            run_bench([model], Settings())
    with pytest.raises(RankscopeError, match="no model"):
        run_bench([])


CHILD = """
import json, os, subprocess, sys, time
def main():
    what = json.loads(sys.argv[1])["model"]
    open(__file__ + ".pid", "w").write(str(os.getpid()))
    if what == "dies at once": sys.exit("no such library\\n")
    for line in sys.stdin:
        if what == "sleeps": time.sleep(60)
        if what == "is killed": subprocess.Popen(["sleep", "60"]), os.kill(os.getpid(), 9)  # a helper outlives it
        if what == "fails": print(json.dumps({"error": "ValueError: it is wrong"}), flush=True)
        if what == "refuses": print(json.dumps({"error": "it is wrong.", "bad_input": True}), flush=True)
        if what == "answers": print(json.dumps({"pid": os.getpid()}), flush=True)
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Child]:
    (tmp_path / "pretended.py").write_text(CHILD)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    return lambda what: Child(Case(what, "stock"), module="pretended")


@pytest.mark.parametrize(
    ("what", "kind", "line"),
    [
        ("dies at once", CaseError, "dies at once:stock: its process ended with 1: no such library"),
        ("is killed", CaseError, "is killed:stock: its process was killed by SIGKILL"),
        ("fails", CaseError, "fails:stock: ValueError: it is wrong"),
        ("refuses", OptionError, "refuses:stock: it is wrong"),
        ("sleeps", CaseError, "sleeps:stock: no response to load within 0.5 s"),
    ],
)
def test_a_child_that_fails_gives_one_line_and_no_hang(
    child: Any, what: str, kind: type, line: str, tmp_path: Path, group_ends: Callable[[int], bool]
) -> None:
    begun = time.monotonic()
    with child(what) as one, pytest.raises(kind) as error:
        one.ask("load", 0.5 if what == "sleeps" else 60)
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)
    assert time.monotonic() - begun < 50
    assert group_ends(int((tmp_path / "pretended.py.pid").read_text()))


@pytest.mark.slow
def test_times_stand_where_the_rates_of_the_machine_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    from rankscope_eval.bench import running

    stock = Child.ask

    def ask(self: Child, line: str, timeout: float) -> Any:
        if line.startswith("rates"):
            raise CaseError("no response to rates within 1 s.")
        return stock(self, line, timeout)

    monkeypatch.setattr(running.Child, "ask", ask)
    report = run_bench(["bundled-bolt:fast"], Settings(batches=(1,), horizon=4, context=16, rounds=2, threads=1))
    (row,) = report.rows
    assert row.seconds.median > 0
    assert (row.roofline_seconds, report.rates) == (None, ())


@pytest.mark.slow
def test_a_case_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from rankscope_eval.bench import running

    stock = Child.ask

    def ask(self: Child, line: str, timeout: float) -> Any:
        if self.case.model == "seasonal-naive" and line == ("load" if self.case.batch == 1 else "forecast"):
            raise CaseError("out of memory")
        return stock(self, line, timeout)

    monkeypatch.setattr(running.Child, "ask", ask)
    settings = Settings(batches=(1, 2), horizon=4, context=16, rounds=2, threads=1)
    report = run_bench(["naive", "seasonal-naive"], settings)
    assert [(row.label, row.batch) for row in report.rows] == [("naive:local", 1), ("naive:local", 2)]
    assert [(one.batch, one.reason) for one in report.failures] == [(1, "out of memory"), (2, "out of memory")]
    with pytest.raises(CaseError, match="out of memory"):
        run_bench(["seasonal-naive"], settings)


INTERRUPTED = """
import os, signal, sys, time
from rankscope_eval.bench import Settings, run_bench
from rankscope_eval.bench.children import Child
stock = Child.ask
pids = []
def ask(self, line, timeout):
    pids.append(self._process.pid)
    if line == "forecast":
        for pid in set(pids):
            os.kill(pid, signal.SIGSTOP)  # so that the end of stdin does not end them
        print(*sorted(set(pids)), flush=True)
        time.sleep(600)
    return stock(self, line, timeout)
Child.ask = ask
try:
    run_bench([sys.argv[1], sys.argv[1] + ":stock"], Settings(batches=(1,), horizon=2, context=8, rounds=1))
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.slow
def test_ctrl_c_kills_the_children(folder: Any, group_ends: Callable[[int], bool]) -> None:
    script = [sys.executable, "-c", INTERRUPTED, str(folder("chronos-bolt"))]
    # a test run in the background ignores SIGINT, and its children would inherit that
    restore = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
    with subprocess.Popen(script, stdout=subprocess.PIPE, text=True, **restore) as process:  # type: ignore[call-overload]
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 2
        for pid in pids:
            os.kill(pid, 0)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    assert all(group_ends(pid) for pid in pids)
