import pytest
import torch

from rankscope.families.models.time_moe import TimeMoe, rotated

CONFIG = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "horizon_lengths": [1, 4],
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-6,
}


@pytest.fixture
def module() -> TimeMoe:
    torch.manual_seed(0)
    return TimeMoe(CONFIG).double().eval()


def test_layers_are_those_of_qwen2(module: TimeMoe) -> None:
    """Qwen2 has the same layers (RMS norms, rotary positions, q, k and v with biases, gated MLPs)."""
    from transformers import Qwen2Config, Qwen2Model

    config = Qwen2Config(
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=3,
        vocab_size=4,
        rms_norm_eps=1e-6,
    )
    other = Qwen2Model(config).double().eval()
    state = {name.replace("ffn_layer", "mlp"): tensor for name, tensor in module.model.state_dict().items()}
    missing, unexpected = other.load_state_dict(state, strict=False)
    assert missing == ["embed_tokens.weight"]
    assert all(name.startswith("embed_layer") for name in unexpected)
    x = torch.randn(2, 11, dtype=torch.float64)
    with torch.no_grad():
        want = other(inputs_embeds=module.model.embed_layer(x)).last_hidden_state
        # Qwen2 keeps the angles in float32 as well
        torch.testing.assert_close(module.model(x), want, rtol=1e-6, atol=1e-6)


def test_the_future_is_not_seen(module: TimeMoe) -> None:
    x = torch.randn(1, 12, dtype=torch.float64)
    changed = x.clone()
    changed[0, 7:] += 5
    for before, after in zip(module(x).values, module(changed).values, strict=True):
        torch.testing.assert_close(before[:, :7], after[:, :7])
        assert not torch.allclose(before[:, 7:], after[:, 7:])


def test_turned_pairs_know_their_distance_only() -> None:
    torch.manual_seed(0)
    q, k = (torch.randn(8, dtype=torch.float64).expand(1, 1, 30, 8) for _ in range(2))
    scores = (rotated(q, 100.0) @ rotated(k, 100.0).mT)[0, 0]
    for distance in (-9, 0, 4):
        line = scores.diagonal(distance)
        torch.testing.assert_close(line, line[:1].expand_as(line), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(rotated(q, 100.0).norm(dim=-1), q.norm(dim=-1), rtol=1e-6, atol=1e-6)


def test_the_loss_compares_each_forecast_with_what_follows(module: TimeMoe) -> None:
    x = 3 * torch.randn(2, 9, dtype=torch.float64)
    with torch.no_grad():
        out = module(x)
    means = []
    for horizon, forecast in zip((1, 4), out.values, strict=True):
        errors = [
            float(forecast[n, t, h] - x[n, t + 1 + h])
            for n in range(2)
            for t in range(9 - horizon)
            for h in range(horizon)
        ]
        means.append(sum(e**2 / 2 if abs(e) < 2 else 2 * (abs(e) - 1) for e in errors) / len(errors))
    assert float(out.loss) == pytest.approx(sum(means) / 2, rel=1e-9)
