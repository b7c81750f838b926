"""Chronos-T5 in the runtime gives the stock pipeline's tokens, and draws from the stock pipeline's distributions."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

from rankscope.checkpoints import open_checkpoint
from rankscope.errors import CheckpointError, FamilyError, OptionError
from rankscope.forecast.batches import TOKENS, chunks, lengths_of
from rankscope.forecast.decoding import Graphs, NotFiniteError
from rankscope.forecast.fast import make_fast
from rankscope.forecast.network import PositionBias
from rankscope.forecast.pipeline import load_pipeline

LAYOUTS = ("dense", "factored", "thin", "head-width", "int8", "twice")
GREEDY = {"num_samples": 1, "top_k": 1}


@pytest.mark.parametrize("products", ["onednn", pytest.param("torch", marks=pytest.mark.slow)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_greedy_tokens_are_those_of_the_stock_pipeline(
    t5_folder: Path, uneven: Any, compressed: Any, both: Any, layout: str, products: str, monkeypatch: Any
) -> None:
    if products == "torch":
        monkeypatch.setattr("rankscope.forecast.products.has_onednn", lambda _: False)
    stock, fast = both(compressed(t5_folder, layout))
    series = uneven(200, 50)
    expected = stock.predict(series, **GREEDY)
    assert torch.equal(fast.predict(series, **GREEDY), expected)
    assert len(expected.unique(dim=0)) > 150
    fast.model.graphs = Graphs(capture=False)  # as a GPU runs it: no shape depends on the step
    assert torch.equal(fast.predict(series, **GREEDY), expected)


def test_greedy_tokens_of_the_bundled_model(uneven: Any, both: Any) -> None:
    stock, fast = both(open_checkpoint("bundled").folder, dtype="float32")
    series = uneven(24, 600)
    options = {**GREEDY, "prediction_length": 24}
    assert torch.equal(fast.predict(series, **options), stock.predict(series, **options))


def test_gated_and_untied_models(
    tmp_path: Path, tiny_config: Any, write_checkpoint: Any, uneven: Any, both: Any
) -> None:
    changes = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "num_decoder_layers": 2}
    folder = write_checkpoint(tmp_path / "gated", tiny_config("chronos-t5", **changes))
    stock, fast = both(folder)
    series = uneven(40, 40)
    assert torch.equal(fast.predict(series, **GREEDY), stock.predict(series, **GREEDY))


def test_horizons_beyond_the_model_s_own_go_on_from_the_median(t5_folder: Path, uneven: Any, both: Any) -> None:
    stock, fast = both(t5_folder)
    series = uneven(9, 40)
    assert torch.equal(
        fast.predict(series, prediction_length=21, **GREEDY), stock.predict(series, prediction_length=21, **GREEDY)
    )


def test_the_batch_does_not_matter(t5_folder: Path, uneven: Any, both: Any, monkeypatch: Any) -> None:
    _, fast = both(t5_folder)
    series = uneven(50, 40)
    whole = fast.predict(series, **GREEDY)
    monkeypatch.setattr("rankscope.forecast.fast.ROWS", 3)
    monkeypatch.setattr("rankscope.forecast.batches.TOKENS", 64)
    assert torch.equal(fast.predict(series, **GREEDY), whole)


def test_weights_are_shared_with_the_stock_module(t5_folder: Path, compressed: Any, both: Any, tmp_path: Path) -> None:
    for layout in ("dense", "factored"):
        folder = compressed(t5_folder, layout)
        stock, fast = both(folder)
        mine, theirs = fast.inner_model.state_dict(), stock.inner_model.state_dict()
        assert list(mine) == list(theirs)
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)
        own = {part.untyped_storage().data_ptr() for part in fast.inner_model.parameters()}
        used = {part.untyped_storage().data_ptr() for part in _tensors(fast.model.network)}
        assert used
        assert used <= own
        series = [torch.arange(20.0)]
        torch.testing.assert_close(fast.embed(series)[0], stock.embed(series)[0])
        fast.inner_model.save_pretrained(tmp_path / f"{layout}-again")
        again = open_checkpoint(tmp_path / f"{layout}-again")
        assert again.parameters == open_checkpoint(folder).parameters


def _tensors(one: Any) -> list[torch.Tensor]:
    """Every tensor that the runtime's parts hold, but what they derive from the weights."""
    if isinstance(one, torch.Tensor):
        return [one] if one.layout == torch.strided else []
    if isinstance(one, list | tuple):
        return [part for some in one for part in _tensors(some)]
    if type(one).__module__.startswith("rankscope.forecast"):
        return [part for name, some in vars(one).items() if name[0] != "_" for part in _tensors(some)]
    return []


def test_half_precision_stays_near(t5_folder: Path, uneven: Any, both: Any) -> None:
    stock, fast = both(t5_folder, dtype="bfloat16")
    tokens = torch.randint(2, 64, (5, 16), generator=torch.Generator().manual_seed(0))
    kept = torch.ones_like(tokens, dtype=torch.bool)
    start = torch.zeros(5, 1, dtype=torch.long)
    with torch.inference_mode():
        expected = stock.inner_model(input_ids=tokens, attention_mask=kept, decoder_input_ids=start).logits[:, 0]
        network = fast.model.network
        context, past = network.encode_context(tokens, kept), network.allocate(5, 1)
        for one in past:
            one.begin(1)
        found = network.step(start[:, 0], 0, past, context, network.bias(1)[:, 0, :1], None)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected.float(), atol=0.05, rtol=0.05)


def test_a_module_that_is_moved_takes_the_runtime_along(t5_folder: Path, both: Any) -> None:
    _, fast = both(t5_folder)
    fast.model.to(torch.float64)
    assert fast.predict([torch.arange(9.0)], **GREEDY).isfinite().all()
    assert fast.model.network.dtype == torch.float64


@pytest.mark.parametrize(
    ("dtype", "fix"),
    [
        ("float32", "check the weights, which are damaged"),
        ("bfloat16", "check the weights, which are damaged"),
        ("float16", "use float32, or bfloat16"),
    ],
)
def test_logits_that_are_not_finite_are_refused(t5_folder: Path, both: Any, dtype: str, fix: str) -> None:
    _, fast = both(t5_folder, dtype=dtype)
    fast.model.network.embed_output.weight.data[0] = torch.inf  # of the token that begins every forecast
    with pytest.raises(NotFiniteError, match=f"logits are not finite in {dtype}: {fix}"):
        fast.predict([torch.arange(9.0)], num_samples=2)


@pytest.mark.parametrize("graphs", [None, Graphs(capture=False)])
def test_one_damaged_token_is_refused(t5_folder: Path, both: Any, graphs: Graphs | None) -> None:
    stock, _ = both(t5_folder)
    stock.inner_model.lm_head.weight.data[7] = torch.nan
    fast = make_fast(stock)
    fast.model.graphs = graphs
    with pytest.raises(NotFiniteError):
        fast.predict([torch.arange(9.0)], num_samples=2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_logits_whose_sum_is_beyond_the_number_format_are_finite(t5_folder: Path, both: Any, dtype: str) -> None:
    _, fast = both(t5_folder, dtype=dtype)
    fast.model.network.head = lambda x: torch.full((len(x), 64), 2000.0, dtype=x.dtype)
    assert fast.predict([torch.arange(9.0)] * 3, num_samples=2).isfinite().all()


def test_steps_are_kept_by_shape(t5_folder: Path, both: Any) -> None:
    _, fast = both(t5_folder)
    fast.model.graphs = graphs = Graphs(capture=False, most=2)
    for length in (5, 30, 6):
        fast.predict([torch.arange(float(length))], **GREEDY)
    assert len(graphs.known) == 1  # short contexts are padded to one shape
    for horizon in (2, 3, 4):
        fast.predict([torch.arange(9.0)], prediction_length=horizon, **GREEDY)
    assert len(graphs.known) == 2


def test_a_position_bias_is_of_the_length_that_was_asked_for_while_other_threads_ask(t5_folder: Path) -> None:
    class Shared(PositionBias):
        def __setattr__(self, name: str, value: Any) -> None:
            shorter = name == "_known" and value is not None  # as if another thread had set its own just after
            super().__setattr__(name, value[:, :1, :1] if shorter else value)

    bias = Shared(load_pipeline(t5_folder).inner_model.encoder.block[0].layer[0].SelfAttention)
    assert [bias(length).shape[1:] for length in (5, 3, 7)] == [(5, 5), (3, 3), (7, 7)]


def test_series_are_encoded_with_little_padding() -> None:
    lengths = torch.tensor([512] * 20 + [500] + [100] * 50)
    order = lengths.argsort(descending=True, stable=True)
    runs = [lengths[places] for places in chunks(order, lengths)]
    assert [len(run) for run in runs] == [4, 4, 4, 4, 4, 1, 20, 20, 10]
    assert all(len(run) * int(run.max()) <= TOKENS for run in runs)
    assert torch.equal(torch.cat(runs), lengths)


def test_a_length_is_counted_from_the_first_value_that_is_there() -> None:
    kept = torch.tensor([[0, 1, 0, 1], [1, 1, 1, 1], [0, 0, 0, 0], [0, 0, 0, 1]]).bool()
    assert lengths_of(kept).tolist() == [3, 4, 1, 1]


def test_arguments_are_those_of_the_stock_method(t5_folder: Path, both: Any) -> None:
    stock, fast = both(t5_folder)
    mine, theirs = (inspect.signature(one.predict).parameters.values() for one in (fast, stock))
    assert [(one.name, one.kind, one.default) for one in mine] == [(one.name, one.kind, one.default) for one in theirs]
    series = [torch.arange(9.0)]
    assert torch.equal(fast.predict(series, 3, 1, 1.0, 1, 1.0, True), stock.predict(series, 3, 1, 1.0, 1, 1.0, True))


@pytest.mark.parametrize("how", [{"prediction_length": 0}, {"num_samples": 0}, {"top_p": 2.0}])
def test_bad_options_are_refused(t5_folder: Path, both: Any, how: dict[str, Any]) -> None:
    _, fast = both(t5_folder)
    with pytest.raises(OptionError, match=next(iter(how))):
        fast.predict([torch.arange(9.0)], **how)


def test_other_models_are_refused_or_stay_stock(chronos2_folder: Path) -> None:
    with pytest.raises(FamilyError, match="use runtime stock"):
        load_pipeline(chronos2_folder, runtime="fast")
    assert type(load_pipeline(chronos2_folder, runtime="auto")).__name__ == "Chronos2Pipeline"
    with pytest.raises(OptionError, match="did you mean 'fast'"):
        load_pipeline(chronos2_folder, runtime="fas")


def test_weights_beyond_float16_are_refused(t5_folder: Path, tmp_path: Path, write_checkpoint: Any) -> None:
    checkpoint = open_checkpoint(t5_folder)
    tensors = {name: checkpoint.tensor(name) for name in checkpoint.index}
    name = "encoder.block.0.layer.0.SelfAttention.q.weight"
    tensors[name][0, 0] = 1e5
    folder = write_checkpoint(tmp_path / "large", checkpoint.config, tensors)
    for runtime in ("stock", "fast"):
        with pytest.raises(CheckpointError, match="exceeds the float16 range"):
            load_pipeline(folder, dtype="float16", runtime=runtime)
        assert load_pipeline(folder, dtype="bfloat16", runtime=runtime) is not None
