"""A static cache, as compiled generation uses it, holds heads of any width, or is refused where it cannot."""

import pytest
import torch

from rankscope.errors import OptionError
from rankscope.families import FAMILIES, HeadWidth
from rankscope.families.weight_layout import low_rank_config
from rankscope.lowrank import LowRankT5Config, LowRankT5ForConditionalGeneration, heads
from rankscope.lowrank.heads import cached

LAYOUTS = [
    HeadWidth((4, 4), (4, 4)),
    HeadWidth((3, 3), (2, 2)),
    HeadWidth((1, 3), (2, 5)),
    HeadWidth((2, 2), (1, 4)),  # equal and unequal widths beside each other
    HeadWidth((3, 1), (3, 3)),
]
TOKENS = torch.arange(2, 22).reshape(2, 10)


@pytest.fixture
def model(layout, tiny_config):
    """A random network of two layers whose tokens depend on every head."""
    stock = tiny_config("chronos-t5", num_decoder_layers=2)
    names = {site.module.rpartition(".")[0] for site in FAMILIES["chronos-t5"].sites(stock) if site.kind == "attention"}
    config = low_rank_config(stock, FAMILIES["chronos-t5"], dict.fromkeys(sorted(names), layout), "design")
    torch.manual_seed(0)
    network = LowRankT5ForConditionalGeneration(LowRankT5Config.from_dict(config)).eval()
    with torch.no_grad():
        for name, weight in network.named_parameters():
            weight.fill_(1.0) if "layer_norm" in name else weight.normal_(std=0.05 if "shared" in name else 0.7)
    return network


def generate(model, **settings):
    torch.manual_seed(1)
    length = {"max_new_tokens": 12, "min_new_tokens": 12}
    return model.generate(TOKENS, **length, return_dict_in_generate=True, output_logits=True, **settings)


@pytest.mark.skipif(not heads._STATIC_FITS, reason="transformers 4 gives a static cache the stock model's widths")
@pytest.mark.parametrize("way", [{"do_sample": False}, {"do_sample": True}, {"do_sample": False, "num_beams": 3}])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_tokens_are_those_of_the_dynamic_cache(layout, way, model):
    dynamic, static = generate(model, **way), generate(model, cache_implementation="static", **way)
    assert torch.equal(dynamic.sequences, static.sequences)
    for one, other in zip(dynamic.logits, static.logits, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    if way["do_sample"]:
        assert len(dynamic.sequences.unique()) > 6
    for layer in range(2):
        keys, values = cached(static.past_key_values.self_attention_cache, layer)
        sequences, slots = keys.shape[0], keys.shape[2]
        assert sequences == 2 * way.get("num_beams", 1)
        assert slots >= 12
        assert keys.numel() == sequences * slots * sum(layout.qk)
        assert values.numel() == sequences * slots * sum(layout.vo)


@pytest.mark.parametrize("layout", LAYOUTS[:2])
def test_a_cache_of_the_stock_widths_is_refused(layout, model, monkeypatch):
    monkeypatch.setattr(heads, "_STATIC_FITS", False)
    with pytest.raises(OptionError, match="leave cache_implementation out"):
        generate(model, cache_implementation="static", do_sample=False)
    assert generate(model, do_sample=False).sequences.shape == (2, 13)
