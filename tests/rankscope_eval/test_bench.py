"""What a forecast takes is counted exactly; cases take turns; children answer, fail and die as they should."""

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
import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from rankscope import load_pipeline, open_checkpoint
from rankscope.compress import CompressOptions, compress
from rankscope.errors import OptionError, RankscopeError
from rankscope.forecast import make_fast
from rankscope.io import codec
from rankscope.train import ModelShape, PretrainConfig
from rankscope.train.models import new_model
from rankscope.train.rank_schedule import RankDesign
from rankscope_eval.bench import Case, Settings, read_case, run_bench
from rankscope_eval.bench.children import CaseError, Child
from rankscope_eval.bench.counts import Phase, cache_bytes, phases, read_network
from rankscope_eval.bench.roofline import Rates, best, floor_seconds, measure_rates
from rankscope_eval.bench.turns import Spread, alternate, ratios

SHAPE = ModelShape(
    d_model=24, d_kv=6, d_ff=40, num_layers=2, num_decoder_layers=2, num_heads=4, n_tokens=64, patch_size=4,
    initializer_factor=1.0, start="broad",
)  # fmt: skip
DESIGNS = {
    "dense": None,
    "head-width": RankDesign(2, 0.8),
    "factored per head": RankDesign(2, 0.4, layout="factored"),
    "factored": RankDesign(9, 0.4, layout="factored", sketch="shared", mlp=True),
    "latents": RankDesign(3, 0.4, layout="factored", sketch="shared", mlp=True),
}
UNKNOWN_TO_TORCH = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v),
    torch.ops.aten.addmm_: lambda x, a, b, **_: 2 * a[0] * a[1] * b[1],
}


def counted(work: Callable[[], Any]) -> int:
    """FLOPs of matrix products as torch counts them while they run."""
    with torch.inference_mode(), FlopCounterMode(display=False, custom_mapping=UNKNOWN_TO_TORCH) as counter:
        work()
    return counter.get_total_flops()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``folder("chronos-t5", "head-width")``: an untrained network of that layout, saved once."""
    root = tmp_path_factory.mktemp("bench")

    def saved(family: str, design: str = "dense", gated: bool = False) -> Path:
        target = root / f"{family} {design} {gated}"
        if not target.exists():
            torch.manual_seed(0)
            shape = replace(SHAPE, feed_forward_proj="gated-gelu") if gated else SHAPE
            made = PretrainConfig(family=family, model=shape, low_rank=DESIGNS[design], context=32, horizon=8)
            new_model(made).save_pretrained(target)
        return target

    return saved


@pytest.fixture(scope="module")
def joined(folder: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``joined("chronos-t5")``: heads of unequal width, in the format that is compressed to."""
    root = tmp_path_factory.mktemp("joined")

    def saved(family: str) -> Path:
        if not (root / family).exists():
            options: dict[str, Any] = {"method": "joint", "allocation": "energy", "calibration": "mixture:16"}
            compress(folder(family), CompressOptions(ratio=0.5, **options), out=root / family)
        return root / family

    return saved


@pytest.fixture
def torch_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of torch itself, as its counter knows no others."""
    monkeypatch.setattr("rankscope.forecast.products.has_onednn", lambda _: False)


def work_of(path: Path, **sizes: Any) -> tuple[Any, Case]:
    network = read_network(open_checkpoint(path), 4)
    assert network is not None
    ranks = [one.cross.key_rank for one in network.decoder if one.cross is not None]
    assert all(ranks) is (str(path).endswith("chronos-t5 latents False"))
    return network, Case(str(path), **{"runtime": "fast", "num_samples": 3, "horizon": 5, "context": 20, **sizes})


def forecast(pipeline: Any, case: Case) -> None:
    more = {"num_samples": case.num_samples} if pipeline.forecast_type.name == "SAMPLES" else {}
    series = torch.randn(case.batch, case.context, generator=torch.Generator().manual_seed(0)).cumsum(1)
    pipeline.predict(series, prediction_length=case.horizon, **more)


@pytest.mark.usefixtures("torch_counts")
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("sizes", [{"batch": 1}, {"batch": 4, "context": 50}, {"batch": 2, "horizon": 19}])
def test_flops_of_chronos_t5_are_those_that_torch_counts(folder: Any, design: str, sizes: dict[str, int]) -> None:
    network, case = work_of(folder("chronos-t5", design), **sizes)
    fast = make_fast(load_pipeline(case.model))
    assert fast.model.network.widths  # measured with one token, once
    assert sum(one.flops for one in phases(network, case)) == counted(lambda: forecast(fast, case))


@pytest.mark.usefixtures("torch_counts")
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize(
    "sizes", [{"batch": 1}, {"batch": 4, "context": 50}, {"batch": 2, "horizon": 19, "context": 9}]
)
def test_flops_of_chronos_bolt_are_those_that_torch_counts(folder: Any, design: str, sizes: dict[str, int]) -> None:
    network, case = work_of(folder("chronos-bolt", design), **sizes)
    fast = make_fast(load_pipeline(case.model))
    assert sum(one.flops for one in phases(network, case)) == counted(lambda: forecast(fast, case))


@pytest.mark.usefixtures("torch_counts")
@pytest.mark.parametrize("family", ["chronos-t5", "chronos-bolt"])
def test_gated_layers_are_counted(folder: Any, family: str) -> None:
    network, case = work_of(folder(family, gated=True), batch=2)
    fast = make_fast(load_pipeline(case.model))
    assert family == "chronos-bolt" or fast.model.network.widths  # measured with one token, once
    assert sum(one.flops for one in phases(network, case)) == counted(lambda: forecast(fast, case))


@pytest.mark.parametrize("design", DESIGNS)
def test_the_stock_encoder_takes_the_same_flops(folder: Any, design: str) -> None:
    network, case = work_of(folder("chronos-t5", design), batch=3)
    encoder = load_pipeline(case.model).inner_model.encoder
    tokens = torch.full((3, 21), 5)
    (phase,) = [one for one in phases(network, case) if one.name == "encoder"]
    assert phase.flops == counted(lambda: encoder(input_ids=tokens))


@pytest.mark.usefixtures("torch_counts")
def test_heads_of_unequal_width_take_no_more_than_the_runtime_runs(folder: Any, joined: Any) -> None:
    network, case = work_of(joined("chronos-t5"), batch=2)
    whole, _ = work_of(folder("chronos-t5"), batch=2)
    flops = sum(one.flops for one in phases(network, case))
    run = counted(lambda: forecast(make_fast(load_pipeline(case.model)), case))
    assert 0.5 * run < flops <= run
    assert flops < sum(one.flops for one in phases(whole, case))


def test_int8_takes_the_flops_of_floats_and_a_quarter_of_the_bytes(folder: Any, tmp_path: Path) -> None:
    compress(folder("chronos-bolt"), CompressOptions(storage="int8"), out=tmp_path / "int8")
    (network, case), (whole, _) = work_of(tmp_path / "int8"), work_of(folder("chronos-bolt"))
    mine, theirs = phases(network, case), phases(whole, case)
    assert [one.flops for one in mine] == [one.flops for one in theirs]
    q, dense = network.encoder[0].own.q, whole.encoder[0].own.q
    assert (q.bytes, dense.bytes) == (24 * 24 + 24 * 4, 24 * 24 * 4)


@pytest.mark.parametrize("design", [*DESIGNS, "joined"])
@pytest.mark.parametrize("batch", [2, 200])
def test_bytes_of_caches_are_those_of_the_tensors(
    folder: Any, joined: Any, design: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = joined("chronos-t5") if design == "joined" else folder("chronos-t5", design)
    network, case = work_of(path, batch=batch)
    fast = make_fast(load_pipeline(path))
    bytes_: list[int] = []

    def watched(name: str) -> None:
        stock = getattr(fast.model.network, name)

        def made(*args: Any) -> Any:
            found = stock(*args)
            parts = [part for one in found for part in getattr(one, "flat", None) or (one.keys, one.values)]
            bytes_.append(sum(part.nbytes for part in parts))
            return found

        monkeypatch.setattr(fast.model.network, name, made)

    watched("remember")
    watched("room")
    forecast(fast, case)
    assert cache_bytes(network, case) == max(sum(bytes_[i : i + 2]) for i in range(0, len(bytes_), 2))


@pytest.mark.parametrize("design", ["dense", "head-width", "factored", "joined"])
def test_bytes_of_the_stock_caches_are_those_of_the_tensors(folder: Any, joined: Any, design: str) -> None:
    path = joined("chronos-t5") if design == "joined" else folder("chronos-t5", design)
    network, case = work_of(path, batch=2, runtime="stock")
    pipeline = load_pipeline(path)
    module, found = pipeline.inner_model, []
    stock = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        answer = stock(*args, **kwargs)
        found.append(answer.past_key_values)
        return answer

    module.forward = forward
    forecast(pipeline, case)
    layers = [*found[-1].self_attention_cache.layers, *found[-1].cross_attention_cache.layers]
    assert cache_bytes(network, case) == sum(one.keys.nbytes + one.values.nbytes for one in layers)


def test_the_weights_that_phases_read_are_those_that_are_stored(folder: Any) -> None:
    network, case = work_of(folder("chronos-t5"), horizon=1, batch=1)
    sizes = {one.name: one.bytes for one in phases(network, case)}
    matrices = sum(
        one.nbytes for name, one in load_pipeline(case.model).inner_model.named_parameters() if one.ndim == 2
    )
    cached = 4 * 21 * (2 * 24) * 2  # keys and values of the context, two layers
    hidden, own = 4 * 21 * 24, 4 * 3 * 0 + 4 * 2 * 48
    biases = 2 * 32 * 4 * 4
    # the encoder writes its answer, the cross-attentions read it; their caches are written once and read once
    assert sum(sizes.values()) == matrices - biases + 2 * hidden + 2 * cached + own


def test_the_floor_is_the_slower_of_moving_and_computing() -> None:
    rates = Rates("float32", 100.0, ((4, 20.0), (64, 10.0)))
    parts = [Phase("a", 1000, 10), Phase("b", 1, 100), Phase("c", 0, 8)]
    assert floor_seconds(parts, rates) == 1000 / 100 + 100 / 10 + 8 / 20
    slow_start = Rates("float32", 1.0, ((4, 1.0), (64, 10.0)))
    assert slow_start.bytes_per_second(2) == 10.0
    assert best([rates, slow_start]) == Rates("float32", 100.0, ((4, 20.0), (64, 10.0)))


def test_rates_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope_eval.bench.roofline.CPU_SIDES", (16,))
    monkeypatch.setattr("rankscope_eval.bench.roofline.CPU_BYTES", (1024, 4096))
    for dtype in ("float32", "bfloat16"):
        found = measure_rates(dtype, "cpu")
        assert found.flops_per_second > 0
        assert [size for size, _ in found.copies] == [1024, 4096]


def test_every_round_begins_with_another_case() -> None:
    now, order = 0.0, []

    def work(name: str, seconds: list[float]) -> Callable[[], float]:
        def turn() -> float:
            nonlocal now
            begun = now
            now += seconds[order.count(name)]
            order.append(name)
            return now - begun

        return turn

    # in the last round the machine is busy with something else
    works = {"a": work("a", [2, 2, 2, 20]), "b": work("b", [1, 1, 1, 10]), "c": work("c", [4, 6, 8, 60])}
    told: list[int] = []
    seconds = alternate(works, 4, told.append)
    assert "".join(order) == "abc" + "bca" + "cab" + "abc"
    assert seconds == {"a": (2, 2, 2, 20), "b": (1, 1, 1, 10), "c": (4, 6, 8, 60)}
    assert told == list(range(1, 13))
    assert ratios(seconds["b"], seconds["a"]) == Spread(0.5, 0.5, 0.5)
    assert ratios(seconds["c"], seconds["a"]) == Spread(3.0, 2.0, 4.0)
    two: list[str] = []
    alternate({name: lambda name=name: two.append(name) or 0.0 for name in "ab"}, 3)
    assert "".join(two) == "ab" + "ba" + "ab"


@pytest.mark.slow
def test_a_report_of_two_runtimes_a_peer_and_a_reference(folder: Any) -> None:
    model, bolt = str(folder("chronos-t5")), str(folder("chronos-bolt"))
    settings = Settings(batches=(1, 3), num_samples=2, horizon=4, context=16, rounds=2, threads=1)
    told: list[tuple[int, int, str]] = []
    report = run_bench(
        [f"{model}:fast:bfloat16", f"{bolt}:stock", "naive"],
        settings,
        baseline=f"{model}:stock:float32",
        progress=lambda *what: told.append(what),
    )
    rows = {(row.label, row.batch): row for row in report.rows}
    labels = [f"{model}:stock:float32", f"{model}:fast:bfloat16", f"{bolt}:stock", "naive:local"]
    assert list(rows) == [(label, batch) for batch in (1, 3) for label in labels]
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
    assert rows["naive:local", 1].roofline_seconds is None
    over = {(one.label, one.batch): one for one in report.ratios}
    assert over.keys() == rows.keys()
    assert over[labels[0], 1].seconds == Spread(1.0, 1.0, 1.0)
    assert over[labels[1], 3].seconds == ratios(fast.turns, stock.turns)
    assert {one.dtype for one in report.rates} == {"float32", "bfloat16"}
    document = json.loads(json.dumps(codec.plain(report)))
    assert document["schema"] == "rankscope/bench@1"
    assert len(report.to_frame()) == 8
    assert told[-1][0] == told[-1][1]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("bundled:fats", "did you mean 'fast'"),
        ("bundled:fast:float23", "did you mean 'float32'"),
        ("bundled:fast:float32:x", "write MODEL"),
        ("bundled:", "write MODEL"),
        ("naive:fast", "one runtime"),
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
        (str(t5_folder), "forecasts no series"),
        (f"{chronos2_folder}:fast", "does not know Chronos-2"),
    ):
        with pytest.raises(RankscopeError, match=part):
            run_bench([model], Settings())
    with pytest.raises(RankscopeError, match="no model"):
        run_bench([])


CHILD = """
import json, os, sys, time
def main():
    what = json.loads(sys.argv[1])["model"]
    if what == "dies at once": sys.exit("no such library\\n")
    for line in sys.stdin:
        if what == "sleeps": time.sleep(60)
        if what == "is killed": os.kill(os.getpid(), 9)
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
        ("sleeps", CaseError, "sleeps:stock: no answer to load in 0.5 s"),
    ],
)
def test_a_child_that_fails_gives_one_line_and_no_hang(child: Any, what: str, kind: type, line: str) -> None:
    begun = time.monotonic()
    with child(what) as one, pytest.raises(kind) as error:
        one.ask("load", 0.5 if what == "sleeps" else 60)
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)
    assert time.monotonic() - begun < 50
    assert one._process.poll() is not None


@pytest.mark.slow
def test_a_case_that_fails_leaves_the_others(folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from rankscope_eval.bench import running

    stock = Child.ask

    def ask(self: Child, line: str, timeout: float) -> Any:
        if self.case.dtype == "float64" and line == ("load" if self.case.batch == 1 else "forecast"):
            raise CaseError("out of memory")
        return stock(self, line, timeout)

    monkeypatch.setattr(running.Child, "ask", ask)
    model = str(folder("chronos-bolt"))
    settings = Settings(batches=(1, 2), horizon=4, context=16, rounds=2, threads=1)
    report = run_bench([model, f"{model}:fast:float64"], settings)
    assert [(row.label, row.batch) for row in report.rows] == [(f"{model}:fast", 1), (f"{model}:fast", 2)]
    assert [(one.batch, one.reason) for one in report.failures] == [(1, "out of memory"), (2, "out of memory")]
    with pytest.raises(CaseError, match="out of memory"):
        run_bench([f"{model}:fast:float64"], settings)


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
