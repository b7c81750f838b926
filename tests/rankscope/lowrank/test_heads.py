"""Head-width attention: against the stock layer, against a loop over heads, with and without the cache."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rankscope import lowrank
from rankscope.checkpoints import open_checkpoint
from rankscope.errors import CheckpointError
from rankscope.families import FAMILIES, Factored, HeadWidth, Layout
from rankscope.families.weight_layout import low_rank_config
from rankscope.lowrank.heads import Heads, HeadWidthAttention, cached

KINDS = {
    "chronos-t5": ("LowRankT5Config", "LowRankT5ForConditionalGeneration"),
    "t5-gated": ("LowRankT5Config", "LowRankT5ForConditionalGeneration"),
    "chronos-bolt": ("LowRankBoltConfig", "LowRankBoltModel"),
}
EVEN = HeadWidth((3, 3), (2, 2))
UNEVEN = HeadWidth((1, 3), (2, 5))


def attentions(config: dict[str, Any]) -> list[str]:
    family = "t5" if "chronos_config" not in config else next(n for n, f in FAMILIES.items() if f.matches(config))
    sites = FAMILIES[family].sites(config)
    return list(dict.fromkeys(site.module.rpartition(".")[0] for site in sites if site.kind == "attention"))


def build(kind: str, stock: dict[str, Any], layouts: dict[str, Layout], seed: int = 0) -> Any:
    config_name, model_name = KINDS[kind]
    config = low_rank_config(stock, FAMILIES[kind.removesuffix("-gated")], layouts, "design")
    torch.manual_seed(seed)
    return getattr(lowrank, model_name)(getattr(lowrank, config_name).from_dict(config)).eval()


def stock_model(kind: str, config: dict[str, Any]) -> Any:
    from chronos.chronos_bolt import ChronosBoltModelForForecasting
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(1)
    made = ChronosBoltModelForForecasting if kind == "chronos-bolt" else T5ForConditionalGeneration
    return made(T5Config(**config)).eval()


@torch.no_grad()
def forward(model: Any, kind: str) -> Tensor:
    if kind == "chronos-bolt":
        return model(context=torch.sin(torch.arange(40.0)).reshape(2, 20)).quantile_preds
    tokens = torch.arange(2, 22).reshape(2, 10)
    mask = torch.ones_like(tokens)
    mask[0, :4] = 0
    return model(input_ids=tokens, attention_mask=mask, decoder_input_ids=tokens[:, :6]).logits


@torch.no_grad()
def loud(model: Any) -> Any:
    """Weights so large that attention is far from uniform and no token only repeats itself: a wrong head would show."""
    for name, weight in model.named_parameters():
        if "layer_norm" in name:
            weight.fill_(1.0)
        else:
            weight.normal_(std=0.05 if name == "shared.weight" else 0.7)
    return model


def generated(model: Any, **settings: Any) -> list[Tensor]:
    """Greedy, sampled and beam search tokens."""
    tokens = torch.arange(2, 22).reshape(2, 10)
    found = []
    for way in ({"do_sample": False}, {"do_sample": True}, {"do_sample": False, "num_beams": 3}):
        torch.manual_seed(0)
        found.append(model.generate(tokens, max_new_tokens=12, min_new_tokens=12, **way, **settings))
    assert len(found[1].unique()) > 6
    return found


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", KINDS)
def test_full_width_is_the_stock_model(kind: str, implementation: str, tiny_config: Callable[..., Any]) -> None:
    config = tiny_config(kind, num_decoder_layers=2)
    stock = loud(stock_model(kind, config))
    width = (config["d_kv"],) * config["num_heads"]
    model = build(kind, config, dict.fromkeys(attentions(config), HeadWidth(width, width)))
    assert sum(isinstance(m, HeadWidthAttention) for m in model.modules()) == 6
    missing = model.load_state_dict(stock.state_dict())
    assert not missing.missing_keys
    assert not missing.unexpected_keys
    for one in (stock, model):
        for part in (one, one.encoder, one.decoder):
            part.config._attn_implementation = implementation
    assert torch.equal(forward(model, kind), forward(stock, kind))
    if kind != "chronos-bolt":
        assert all(torch.equal(a, b) for a, b in zip(generated(model), generated(stock), strict=True))


def slow(attention: HeadWidthAttention, x: Tensor, source: Tensor, bias: Tensor) -> Tensor:
    """One head after the other, one query after the other, in float64."""
    q, k, v, o = (getattr(attention, letter).weight.double() for letter in "qkvo")
    out = torch.zeros(x.shape, dtype=torch.float64)
    start_qk = start_vo = 0
    for head, (qk, vo) in enumerate(zip(attention.layout.qk, attention.layout.vo, strict=True)):
        rows, columns = slice(start_qk, start_qk + qk), slice(start_vo, start_vo + vo)
        for b in range(x.shape[0]):
            for t in range(x.shape[1]):
                query = q[rows] @ x[b, t]
                scores = torch.stack([query @ (k[rows] @ s) for s in source[b]]) + bias[0, head, t]
                mixed = sum(w * (v[columns] @ s) for w, s in zip(scores.softmax(0), source[b], strict=True))
                out[b, t] += o[:, columns] @ mixed
        start_qk, start_vo = start_qk + qk, start_vo + vo
    return out


@pytest.mark.parametrize("layout", [EVEN, UNEVEN, HeadWidth((2, 2), (1, 4)), HeadWidth((5, 1), (3, 3))])
@pytest.mark.parametrize("cross", [False, True])
def test_against_a_loop_over_heads(layout: HeadWidth, cross: bool, tiny_config: Callable[..., Any]) -> None:
    config = tiny_config("chronos-t5")
    name = "decoder.block.0.layer.1.EncDecAttention" if cross else "encoder.block.0.layer.0.SelfAttention"
    attention = loud(build("chronos-t5", config, {name: layout})).double().get_submodule(name)
    x, other = torch.randn(2, 5, 16, dtype=torch.float64), torch.randn(2, 7, 16, dtype=torch.float64)
    bias = torch.randn(1, 2, 5, 7 if cross else 5, dtype=torch.float64)
    with torch.no_grad():
        found = attention(x, key_value_states=other if cross else None, position_bias=bias)[0]
        expected = slow(attention, x, other if cross else x, bias)
    # transformers 4 takes the softmax in float32
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("layout", [EVEN, UNEVEN])
@pytest.mark.parametrize("kind", ["chronos-t5", "t5-gated"])
def test_the_cache_changes_nothing_and_has_the_heads_own_widths(
    kind: str, layout: HeadWidth, tiny_config: Callable[..., Any]
) -> None:
    config = tiny_config(kind, num_decoder_layers=2)
    model = loud(build(kind, config, dict.fromkeys(attentions(config), layout)))
    pairs = zip(generated(model, use_cache=True), generated(model, use_cache=False), strict=True)
    assert all(torch.equal(cached, anew) for cached, anew in pairs)
    tokens = torch.arange(2, 22).reshape(2, 10)
    answer = model.generate(tokens, max_new_tokens=5, min_new_tokens=5, do_sample=False, return_dict_in_generate=True)
    cache = answer.past_key_values
    for part, length in ((cache.self_attention_cache, 5), (cache.cross_attention_cache, 10)):
        for layer in range(2):
            keys, values = cached(part, layer)
            assert keys.numel() == 2 * length * sum(layout.qk)
            assert values.numel() == 2 * length * sum(layout.vo)


@pytest.mark.parametrize("layout", [EVEN, UNEVEN])
@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_folder_loads_everywhere(
    kind: str, layout: HeadWidth, tiny_config: Callable[..., Any], tmp_path: Path
) -> None:
    config = tiny_config(kind)
    model = loud(build(kind, config, dict.fromkeys(attentions(config), layout)))
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path).eval()
    assert torch.equal(forward(model, kind), forward(again, kind))
    assert json.loads((tmp_path / "config.json").read_text())["rankscope"] == model.config.rankscope
    checkpoint = open_checkpoint(tmp_path)
    assert {checkpoint.layout(site) for site in checkpoint.sites("attention")} == {"head-width"}
    for site in checkpoint.sites("attention"):
        weight = model.get_submodule(site.module).weight
        assert checkpoint.shape(site) == tuple(weight.shape)
        assert torch.equal(checkpoint.matrix(site), weight)
        assert site.head_widths == layout.of(site.role[-1])
    assert torch.equal(forward(checkpoint.module(), kind), forward(model, kind))


def test_a_head_width_attention_may_hold_factors(tiny_config: Callable[..., Any], tmp_path: Path) -> None:
    config = tiny_config("chronos-t5")
    name = "encoder.block.0.layer.0.SelfAttention"
    layouts: dict[str, Layout] = {
        name: HeadWidth((5, 5), (4, 6)),
        f"{name}.q": Factored(2, 2),
        f"{name}.o": Factored(3),
    }
    model = loud(build("chronos-t5", config, layouts)).double()
    model.save_pretrained(tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    attention = model.get_submodule(name)
    shapes = {"q": (10, 16), "k": (10, 16), "v": (10, 16), "o": (16, 10)}
    for site in checkpoint.sites("encoder"):
        if site.layer == 0:
            assert checkpoint.shape(site) == shapes[site.role[-1]]
            assert checkpoint.layout(site) == ("factored" if site.role[-1] in "qo" else "head-width")
    plain = build("chronos-t5", config, {name: layouts[name]}).double().get_submodule(name)
    with torch.no_grad():
        plain.relative_attention_bias.weight.copy_(attention.relative_attention_bias.weight)
        for letter in "qkvo":
            layer = getattr(attention, letter)
            getattr(plain, letter).weight.copy_(layer.dense() if letter in "qo" else layer.weight)
        x = torch.randn(2, 5, 16, dtype=torch.float64)
        torch.testing.assert_close(attention(x)[0], plain(x)[0], rtol=0, atol=1e-10)


def test_stock_law_at_the_heads_own_widths(tiny_config: Callable[..., Any]) -> None:
    sizes = {"d_model": 256, "d_kv": 32, "num_heads": 2, "initializer_factor": 0.5}
    config = tiny_config("chronos-t5", **sizes)
    layout = HeadWidth((4, 64), (8, 120))
    model = build("chronos-t5", config, dict.fromkeys(attentions(config), layout))
    for attention in (m for m in model.modules() if isinstance(m, HeadWidthAttention)):
        narrow, wide = attention.q.weight.detach().split(layout.qk)
        assert narrow.std().item() == pytest.approx(0.5 * (256 * 4) ** -0.5, rel=0.12)
        assert wide.std().item() == pytest.approx(0.5 * (256 * 64) ** -0.5, rel=0.04)
        for letter, fan in (("k", 256), ("v", 256), ("o", 128)):
            std = getattr(attention, letter).weight.std().item()
            assert std == pytest.approx(0.5 * fan**-0.5, rel=0.04)


@pytest.mark.parametrize("layout", [EVEN, UNEVEN])
def test_gradients_reach_every_projection(layout: HeadWidth, tiny_config: Callable[..., Any]) -> None:
    config = tiny_config("chronos-t5", dropout_rate=0.0)
    model = loud(build("chronos-t5", config, dict.fromkeys(attentions(config), layout))).train()
    tokens = torch.arange(2, 22).reshape(2, 10)
    loss = model(input_ids=tokens, labels=tokens[:, :4].contiguous()).loss
    loss.backward()
    plain = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    for name in attentions(config):
        for letter in "qkvo":
            assert plain[f"{name}.{letter}.weight"].abs().sum() > 0, name
    model.zero_grad()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model(input_ids=tokens, labels=tokens[:, :4].contiguous()).loss.backward()
    for name, gradient in plain.items():
        torch.testing.assert_close(model.get_parameter(name).grad, gradient, rtol=1e-5, atol=1e-6)


def test_bfloat16_and_a_copy(tiny_config: Callable[..., Any]) -> None:
    import copy

    config = tiny_config("chronos-bolt")
    model = build("chronos-bolt", config, dict.fromkeys(attentions(config), UNEVEN)).to(torch.bfloat16)
    assert forward(copy.deepcopy(model), "chronos-bolt").isfinite().all()


@pytest.mark.parametrize(("widths", "total"), [((3, 3), 6), ((1, 4, 2), 7)])
def test_spread_and_joined_are_inverse(widths: tuple[int, ...], total: int) -> None:
    heads = Heads(widths)
    x = torch.randn(2, 5, total)
    spread = heads.spread(heads.cached(x))
    assert spread.shape == (2, len(widths), 5, max(widths))
    assert torch.equal(heads.joined(spread.transpose(1, 2)), x)
    start = 0
    for head, width in enumerate(widths):
        assert torch.equal(spread[:, head, :, :width], x[..., start : start + width])
        assert not spread[:, head, :, width:].any()
        start += width


@pytest.mark.parametrize(
    ("sites", "message"),
    [
        ({"encoder.block.0.layer.0.SelfAttention": HeadWidth((2,), (2,))}, "lists 1 heads, num_heads is 2"),
        (
            {"encoder.block.0.layer.0": HeadWidth((2, 2), (2, 2))},
            r"encoder\.block\.0\.layer\.0'.*not an attention layer",
        ),
        ({"encoder.block.0.layer.0.SelfAttention": HeadWidth((2, 3), (2, 2))}, r"q\.weight.*implies \[5, 16\]"),
    ],
)
def test_folders_that_disagree_are_refused(
    sites: dict[str, HeadWidth], message: str, tiny_config: Callable[..., Any], write_checkpoint: Any, tmp_path: Path
) -> None:
    config = low_rank_config(tiny_config("chronos-t5"), FAMILIES["chronos-t5"], sites, "design")
    tensors = FAMILIES["chronos-t5"].expected_shapes(tiny_config("chronos-t5"))
    folder = write_checkpoint(tmp_path / "m", config, {name: torch.zeros(shape) for name, shape in tensors.items()})
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(folder)


def test_the_model_class_refuses_what_is_no_attention(tiny_config: Callable[..., Any]) -> None:
    with pytest.raises(CheckpointError, match="not an attention layer of the model"):
        build("chronos-t5", tiny_config("chronos-t5"), {"encoder.block.0": EVEN})
    with pytest.raises(CheckpointError, match="1 head widths where num_heads is 2"):
        build(
            "chronos-t5", tiny_config("chronos-t5"), {attentions(tiny_config("chronos-t5"))[0]: HeadWidth((2,), (2,))}
        )


def chronos2_layer(stock: Any, part: int) -> Any:
    return stock.encoder.block[0].layer[part].self_attention


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
def test_chronos_2_with_heads_of_the_stock_width_is_the_stock_model(
    kernel: str, tiny_config: Callable[..., Any]
) -> None:
    config = tiny_config("chronos-2")
    modules = [f"encoder.block.{layer}.layer.{part}.self_attention" for layer in range(2) for part in range(2)]
    plain = low_rank_config(config, FAMILIES["chronos-2"], {}, "design")
    wide = low_rank_config(config, FAMILIES["chronos-2"], dict.fromkeys(modules, HeadWidth((4, 4), (4, 4))), "design")
    stock, narrow = (
        lowrank.LowRankChronos2Model(lowrank.LowRankChronos2Config.from_dict(one)).eval() for one in (plain, wide)
    )
    assert [type(chronos2_layer(model, 0)).__name__ for model in (stock, narrow)] == ["MHA", "HeadWidthMHA"]
    narrow.load_state_dict(stock.state_dict())
    context = torch.randn(4, 32, generator=torch.Generator().manual_seed(1)).cumsum(dim=1)
    answers = []
    for model in (stock, narrow):
        model.config._attn_implementation = kernel
        chronos2_layer(model, 0).config._attn_implementation = kernel
        with torch.no_grad():
            answers.append(model(context=context, group_ids=torch.tensor([0, 0, 1, 1])).quantile_preds)
    assert torch.equal(*answers)


def test_chronos_2_turns_no_queries_of_other_widths(
    tiny_config: Callable[..., Any], write_checkpoint: Any, tmp_path: Path
) -> None:
    stock = tiny_config("chronos-2")
    for part, widths, message in (
        (0, HeadWidth((4, 3), (4, 4)), "rotary positions"),
        (1, HeadWidth((4,), (4,)), "1 head"),
    ):
        sites = {f"encoder.block.0.layer.{part}.self_attention": widths}
        config = low_rank_config(stock, FAMILIES["chronos-2"], sites, "design")
        tensors = FAMILIES["chronos-2"].expected_shapes(stock)
        folder = write_checkpoint(
            tmp_path / str(part), config, {name: torch.zeros(shape) for name, shape in tensors.items()}
        )
        for read in (
            lambda folder=folder: open_checkpoint(folder),
            lambda config=config: lowrank.LowRankChronos2Model(lowrank.LowRankChronos2Config.from_dict(config)),
        ):
            with pytest.raises(CheckpointError, match=message) as caught:
                read()
            assert "\n" not in str(caught.value)
    config = low_rank_config(stock, FAMILIES["chronos-2"], {"encoder.block.0": HeadWidth((4, 4), (4, 4))}, "design")
    with pytest.raises(CheckpointError, match="not an attention layer of the model"):
        lowrank.LowRankChronos2Model(lowrank.LowRankChronos2Config.from_dict(config))
