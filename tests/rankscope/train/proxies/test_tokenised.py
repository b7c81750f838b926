"""Data of Time-MoE, WaveToken and TOTEM, and that they learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import pywt
import torch

from rankscope.checkpoints import open_checkpoint
from rankscope.families.models.wavelets import END, SPECIAL, WaveletTokens
from rankscope.train.proxies import ProxyOptions, train_proxy
from rankscope.train.proxies.tokenised import HORIZON, PAST, wavetoken, windows


def test_windows_follow_seed_and_step() -> None:
    first = windows(1, 5, False, 16, 96)
    assert first.shape == (16, 96)
    assert torch.isfinite(first).all()
    assert torch.equal(first, windows(1, 5, False, 16, 96))
    others = [windows(2, 5, False, 16, 96), windows(1, 6, False, 16, 96), windows(1, 5, True, 16, 96)]
    assert not any(torch.equal(first, other) for other in others)


def test_wavetoken_predicts_the_coefficients_of_what_follows() -> None:
    torch.manual_seed(0)
    recipe = wavetoken(ProxyOptions(width=32, layers=1, seed=3), 6)
    batch = recipe.batches(2, False)
    x = windows(3, 2, False, 6, PAST + HORIZON).double().numpy()
    tokens = WaveletTokens()
    centres = np.linspace(-tokens.limit, tokens.limit, tokens.n_tokens - SPECIAL)
    spread = x[:, :PAST].std(1, keepdims=True)
    scaled = (x - x[:, :PAST].mean(1, keepdims=True)) / spread
    for ids, want in ((batch["input_ids"], scaled[:, :PAST]), (batch["labels"], scaled[:, PAST:])):
        assert (ids[:, -1] == END).all()
        inside = np.abs(want).max(1) < tokens.limit / 2
        assert inside.sum() >= 4
        halves = np.split(centres[ids[:, :-1].numpy() - SPECIAL], 2, axis=1)
        got = pywt.waverec(halves, tokens.wavelet, mode="periodization", axis=1)
        # bins are 2·15/1021 wide, and the synthesis adds up a few of their halves
        np.testing.assert_allclose(got[inside], want[inside], atol=0.04)


@pytest.mark.parametrize(("family", "steps"), [("time-moe", 12), ("wavetoken", 6), ("totem", 15)])
def test_a_short_training_lowers_the_held_out_loss(family: str, steps: int, tmp_path: Path) -> None:
    options = ProxyOptions(steps=steps, batch_size=8, width=32, layers=1)
    report = train_proxy(family, tmp_path / "a", options, dtype="float16")
    assert report.held_out_after < report.held_out_before
    checkpoint = open_checkpoint(tmp_path / "a")
    assert checkpoint.family.name == family
    assert checkpoint.parameters == report.parameters
    if family == "totem":
        again = train_proxy(family, tmp_path / "b", options, dtype="float16")
        assert again.held_out_after == report.held_out_after
        assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()
