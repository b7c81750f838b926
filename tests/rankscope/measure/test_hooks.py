from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration

from rankscope.measure.hooks import Rows, run_corpus, stream_triangles, valid_positions, watch
from rankscope_eval.bench.worker import peak_bytes, reset_peak

VOCAB = 40


@pytest.fixture(scope="module")
def model() -> T5ForConditionalGeneration:
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=VOCAB, d_model=12, d_kv=4, d_ff=16, num_layers=3, num_decoder_layers=2, num_heads=3,
        decoder_start_token_id=0, dropout_rate=0.1,
    )  # fmt: skip
    return T5ForConditionalGeneration(config).eval()


@pytest.fixture(scope="module")
def series() -> Tensor:
    return torch.randint(2, VOCAB, (10, 7), generator=torch.Generator().manual_seed(1)).float()


def blocks(model: nn.Module) -> dict[str, list[nn.Module]]:
    return {"encoder": list(model.encoder.block), "decoder": list(model.decoder.block)}


def layers(model: nn.Module) -> dict[tuple[str, int], nn.Module]:
    return {(stack, layer): block for stack, rows in blocks(model).items() for layer, block in enumerate(rows)}


def inputs(module: nn.Module, batch: Tensor) -> dict[str, Any]:
    return {"input_ids": batch.long(), "decoder_input_ids": batch[:, :4].long()}


def hook_count(module: nn.Module) -> int:
    return sum(len(child._forward_pre_hooks) + len(child._forward_hooks) for child in module.modules())


def test_captures_what_transformers_reports(model: T5ForConditionalGeneration, series: Tensor) -> None:
    with watch(layers(model), Rows) as captured:
        run_corpus(model, inputs, series, batch_size=4)
    with torch.no_grad():
        out = model(**inputs(model, series), output_hidden_states=True)
    for stack, reported in (("encoder", out.encoder_hidden_states), ("decoder", out.decoder_hidden_states)):
        for layer, states in enumerate(reported[:-1]):  # the last one is the stack's normalised output
            torch.testing.assert_close(captured[stack, layer].matrix, states.reshape(-1, 12))


def test_hooks_are_gone_after_the_block(model: T5ForConditionalGeneration, series: Tensor) -> None:
    at_first = hook_count(model)  # transformers may keep some of its own
    with watch(layers(model), Rows) as captured:
        assert hook_count(model) == at_first + 5
        run_corpus(model, inputs, series[:2])
    before = captured["encoder", 0].matrix.shape
    model(**inputs(model, series[:2]))
    assert captured["encoder", 0].matrix.shape == before
    assert hook_count(model) == at_first


def test_hooks_are_gone_after_an_error(model: T5ForConditionalGeneration) -> None:
    at_first = hook_count(model)

    def fail() -> None:
        with stream_triangles(blocks(model)):
            assert hook_count(model) == at_first + 5
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert hook_count(model) == at_first


def test_hooks_are_gone_when_placing_them_fails(model: T5ForConditionalGeneration) -> None:
    at_first = hook_count(model)
    modules: dict[str, Any] = {"good": model.encoder.block[0], "bad": object()}
    with pytest.raises(AttributeError), watch(modules, Rows):
        pass
    assert hook_count(model) == at_first


def test_triangles_are_those_of_every_layer(model: T5ForConditionalGeneration, series: Tensor) -> None:
    with watch(layers(model), Rows) as whole, stream_triangles(blocks(model)) as triangles:
        run_corpus(model, inputs, series, batch_size=3)
    assert list(triangles) == [("encoder", 0), ("encoder", 1), ("encoder", 2), ("decoder", 0), ("decoder", 1)]
    for key, triangle in triangles.items():
        x = whole[key].matrix.double()
        assert triangle.tokens == len(x)
        torch.testing.assert_close(triangle.r.T @ triangle.r, x.T @ x)


def test_triangle_keeps_singular_values_that_a_gram_matrix_loses() -> None:
    torch.manual_seed(0)
    u = torch.linalg.qr(torch.randn(60, 6, dtype=torch.float64)).Q
    v = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64)).Q
    sigma = torch.logspace(0, -12, 6, dtype=torch.float64)
    x = u @ torch.diag(sigma) @ v.T
    layer = nn.Identity()
    with stream_triangles({"encoder": [layer]}) as streamed:
        for part in x.split(7):
            layer(part)
    triangle = streamed["encoder", 0]
    assert triangle.tokens == 60
    assert triangle.r.shape == (6, 6)
    got = torch.linalg.svdvals(triangle.r)
    torch.testing.assert_close(got, sigma, rtol=1e-3, atol=0)
    gram = torch.linalg.eigvalsh(x.T @ x).flip(0).clamp_min(0).sqrt()
    assert not torch.allclose(gram[-1], sigma[-1], rtol=0.5, atol=0)


def test_memory_does_not_grow_with_the_corpus() -> None:
    layer = nn.Identity()
    batch = torch.randn(512, 64, 16)  # 2 MiB
    with stream_triangles({"encoder": [layer]}):
        layer(batch)
        reset_peak("cpu")
        before = peak_bytes("cpu")
        for _ in range(40):
            layer(batch)
        grown = peak_bytes("cpu") - before
    assert grown < 40 * 2**20  # keeping the batches would take 80 MiB


def test_padding_is_left_out(model: T5ForConditionalGeneration, series: Tensor) -> None:
    mask = torch.ones(10, 7, dtype=torch.long)
    mask[::2, :3] = 0
    with watch(layers(model), Rows) as captured:
        run_corpus(model, lambda m, batch: inputs(m, batch) | {"attention_mask": mask}, series)
    with torch.no_grad():
        states = model(**inputs(model, series), attention_mask=mask, output_hidden_states=True)
    for layer in range(3):
        want = states.encoder_hidden_states[layer][mask.bool()]
        torch.testing.assert_close(captured["encoder", layer].matrix, want)
    assert captured["decoder", 1].matrix.shape[0] == 40  # the decoder's own positions are all real


@pytest.mark.parametrize("form", ["boolean", "additive", "flat", "causal"])
def test_every_form_of_mask(form: str) -> None:
    keep = torch.tensor([[False, True, True], [True, True, True]])
    additive = torch.zeros(2, 1, 1, 3).masked_fill(~keep[:, None, None], torch.finfo(torch.float32).min)
    causal = torch.ones(3, 3, dtype=torch.bool).tril()[None, None] & keep[:, None, None]
    masks = {"boolean": keep[:, None, None], "additive": additive, "flat": keep.float(), "causal": causal}
    got = valid_positions((torch.empty(2, 3, 4),), {"attention_mask": masks[form]}, torch.empty(2, 3, 4))
    assert got is not None
    assert torch.equal(got, keep)


def test_no_mask_or_one_of_another_length_says_nothing() -> None:
    x = torch.empty(2, 3, 4)
    assert valid_positions((x,), {}, x) is None
    assert valid_positions((x, None), {}, x) is None
    assert valid_positions((x,), {"attention_mask": torch.ones(2, 9)}, x) is None


def test_hidden_states_by_keyword() -> None:
    class Block(nn.Module):
        def forward(self, hidden_states: Tensor) -> Tensor:
            return hidden_states

    block, x = Block(), torch.randn(2, 3, 4)
    with watch({"block": block}, Rows) as captured:
        block(hidden_states=x)
    assert torch.equal(captured["block"].matrix, x.reshape(6, 4))


def test_identical_tokens_keep_rank_one_through_every_layer(model: T5ForConditionalGeneration) -> None:
    """T5 adds no position to the residual stream: equal tokens attend to equal values and stay equal."""
    same = torch.full((3, 9), 5.0)
    with stream_triangles(blocks(model)) as triangles:
        run_corpus(model, inputs, same)
    for triangle in triangles.values():
        sigma = torch.linalg.svdvals(triangle.r)
        assert sigma[0] > 0
        assert sigma[1] / sigma[0] < 1e-5


def test_reading_before_a_forward_pass_is_an_error() -> None:
    layer = nn.Identity()
    with stream_triangles({"encoder": [layer]}) as triangles:
        pass
    with pytest.raises(RuntimeError, match="no forward pass"):
        _ = triangles["encoder", 0].r


def test_progress_counts_series(model: T5ForConditionalGeneration, series: Tensor) -> None:
    seen: list[tuple[int, int, str]] = []
    run_corpus(model, inputs, series, batch_size=4, progress=lambda *call: seen.append(call))
    assert [call[:2] for call in seen] == [(0, 10), (4, 10), (8, 10), (10, 10)]
