"""FLOPs and bytes of a forecast are counted exactly, and the least time that they can take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from rankscope import load_pipeline
from rankscope.compress import CompressOptions, compress
from rankscope.forecast.fast import make_fast
from rankscope_eval.bench import Case
from rankscope_eval.bench.counts import Phase, cache_bytes, phases
from rankscope_eval.bench.roofline import Rates, best, floor_seconds, measure_rates

DESIGNS = ("dense", "head-width", "factored per head", "factored", "latents")
UNKNOWN_TO_TORCH = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v),
    torch.ops.aten.addmm_: lambda x, a, b, **_: 2 * a[0] * a[1] * b[1],
}


def counted(work: Callable[[], Any]) -> int:
    """FLOPs of matrix products as torch counts them while they run."""
    with torch.inference_mode(), FlopCounterMode(display=False, custom_mapping=UNKNOWN_TO_TORCH) as counter:
        work()
    return counter.get_total_flops()


@pytest.fixture
def torch_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of torch itself, as its counter knows no others."""
    monkeypatch.setattr("rankscope.forecast.products.has_onednn", lambda _: False)


def forecast(pipeline: Any, case: Case) -> None:
    more = {"num_samples": case.num_samples} if pipeline.forecast_type.name == "SAMPLES" else {}
    series = torch.randn(case.batch, case.context, generator=torch.Generator().manual_seed(0)).cumsum(1)
    pipeline.predict(series, prediction_length=case.horizon, **more)


@pytest.mark.usefixtures("torch_counts")
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("sizes", [{"batch": 1}, {"batch": 4, "context": 50}, {"batch": 2, "horizon": 19}])
def test_flops_of_chronos_t5_are_those_that_torch_counts(
    folder: Any, design: str, sizes: dict[str, int], work_of: Any
) -> None:
    network, case = work_of(folder("chronos-t5", design), **sizes)
    fast = make_fast(load_pipeline(case.model))
    assert fast.model.network.widths  # measured with one token, once
    assert sum(one.flops for one in phases(network, case)) == counted(lambda: forecast(fast, case))


@pytest.mark.usefixtures("torch_counts")
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize(
    "sizes", [{"batch": 1}, {"batch": 4, "context": 50}, {"batch": 2, "horizon": 19, "context": 9}]
)
def test_flops_of_chronos_bolt_are_those_that_torch_counts(
    folder: Any, design: str, sizes: dict[str, int], work_of: Any
) -> None:
    network, case = work_of(folder("chronos-bolt", design), **sizes)
    fast = make_fast(load_pipeline(case.model))
    assert sum(one.flops for one in phases(network, case)) == counted(lambda: forecast(fast, case))


@pytest.mark.usefixtures("torch_counts")
@pytest.mark.parametrize("family", ["chronos-t5", "chronos-bolt"])
def test_gated_layers_are_counted(folder: Any, family: str, work_of: Any) -> None:
    network, case = work_of(folder(family, gated=True), batch=2)
    fast = make_fast(load_pipeline(case.model))
    assert family == "chronos-bolt" or fast.model.network.widths  # measured with one token, once
    assert sum(one.flops for one in phases(network, case)) == counted(lambda: forecast(fast, case))


@pytest.mark.parametrize("design", DESIGNS)
def test_the_stock_encoder_takes_the_same_flops(folder: Any, design: str, work_of: Any) -> None:
    network, case = work_of(folder("chronos-t5", design), batch=3)
    encoder = load_pipeline(case.model).inner_model.encoder
    tokens = torch.full((3, 21), 5)
    (phase,) = [one for one in phases(network, case) if one.name == "encoder"]
    assert phase.flops == counted(lambda: encoder(input_ids=tokens))


@pytest.mark.usefixtures("torch_counts")
def test_heads_of_unequal_width_take_no_more_than_the_runtime_runs(folder: Any, joined: Any, work_of: Any) -> None:
    network, case = work_of(joined("chronos-t5"), batch=2)
    whole, _ = work_of(folder("chronos-t5"), batch=2)
    flops = sum(one.flops for one in phases(network, case))
    run = counted(lambda: forecast(make_fast(load_pipeline(case.model)), case))
    assert 0.5 * run < flops <= run
    assert flops < sum(one.flops for one in phases(whole, case))


def test_int8_takes_the_flops_of_floats_and_a_quarter_of_the_bytes(folder: Any, tmp_path: Path, work_of: Any) -> None:
    compress(folder("chronos-bolt"), CompressOptions(storage="int8"), out=tmp_path / "int8")
    (network, case), (whole, _) = work_of(tmp_path / "int8"), work_of(folder("chronos-bolt"))
    mine, theirs = phases(network, case), phases(whole, case)
    assert [one.flops for one in mine] == [one.flops for one in theirs]
    q, dense = network.encoder[0].own.q, whole.encoder[0].own.q
    assert (q.bytes, dense.bytes) == (24 * 24 + 24 * 4, 24 * 24 * 4)
    assert network.head.bytes < whole.head.bytes / 3


@pytest.mark.parametrize("design", [*DESIGNS, "joined"])
@pytest.mark.parametrize("batch", [2, 200])
def test_bytes_of_caches_are_those_of_the_tensors(
    folder: Any, joined: Any, design: str, batch: int, monkeypatch: pytest.MonkeyPatch, work_of: Any
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

    watched("encode_context")
    watched("allocate")
    forecast(fast, case)
    assert cache_bytes(network, case) == max(sum(bytes_[i : i + 2]) for i in range(0, len(bytes_), 2))


@pytest.mark.parametrize("design", ["dense", "head-width", "factored", "joined"])
def test_bytes_of_the_stock_caches_are_those_of_the_tensors(
    folder: Any, joined: Any, design: str, work_of: Any
) -> None:
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


def test_the_weights_that_phases_read_are_those_that_are_stored(folder: Any, work_of: Any) -> None:
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
