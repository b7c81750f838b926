"""Scores position by position against a loop; masks and the constant start on models with known answers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from rankscope_lab.encoders.diagnostics import mask_channels, position_scores, without_prefix

_SERIES, _TIME, _CHANNELS, _BINS = 70, 12, 3, 5
_DRAW = torch.Generator().manual_seed(0)
_INPUTS = torch.randn(_SERIES, _TIME, _CHANNELS, generator=_DRAW)
_LABELS = torch.randint(_BINS, (_SERIES, _TIME), generator=_DRAW)
_MAP = torch.randn(_CHANNELS, _BINS, generator=_DRAW)


def linear_model(x: Tensor) -> Tensor:
    return x @ _MAP


def test_scores_equal_a_loop_over_positions() -> None:
    found = position_scores(linear_model, _INPUTS, _LABELS)
    assert found.nll.shape == (_SERIES, _TIME - 1)
    for series in (0, 31, 32, 69):  # on both sides of a batch's edge
        for t in range(_TIME - 1):
            logits = [float(v) for v in _INPUTS[series, t].double() @ _MAP.double()]
            label = int(_LABELS[series, t + 1])
            log_sum = math.log(sum(math.exp(v) for v in logits))
            assert float(found.nll[series, t]) == pytest.approx(log_sum - logits[label], rel=1e-5)
            assert bool(found.right[series, t]) == (max(range(_BINS), key=logits.__getitem__) == label)


def test_a_mask_hits_only_the_channel_that_a_model_looks_at() -> None:
    labels = (_INPUTS[..., 1] > 0).long().roll(1, dims=1)  # bin of the next step: sign of channel 1 now

    def sees_one(x: Tensor) -> Tensor:
        return torch.stack((torch.zeros_like(x[..., 1]), x[..., 1]), -1)

    found = mask_channels(sees_one, _INPUTS, labels)
    assert found.none == 1.0
    assert found.masked[0] == found.masked[2] == 1.0
    assert found.masked[1] == pytest.approx(float((labels[:, 1:] == 0).double().mean()), abs=1e-9)
    assert float(_INPUTS.abs().min()) > 0  # the inputs are left as they were


def test_leaving_out_the_prefix_is_the_mean_over_the_rest() -> None:
    scores = position_scores(linear_model, _INPUTS, _LABELS)
    found = without_prefix(scores, lead=7)
    # targets t = 1..11 are scored; t = 1..6 lie in the constant start, t = 7..11 do not
    real = [float(scores.nll[s, t - 1]) for s in range(_SERIES) for t in range(7, _TIME)]
    start = [float(scores.nll[s, t - 1]) for s in range(_SERIES) for t in range(1, 7)]
    assert found.free_nll == pytest.approx(sum(real) / len(real), rel=1e-6)
    assert found.nll == pytest.approx((sum(real) + sum(start)) / (_SERIES * 11), rel=1e-6)
    right = [float(scores.right[s, t - 1]) for s in range(_SERIES) for t in range(7, _TIME)]
    assert found.free_accuracy == pytest.approx(sum(right) / len(right), rel=1e-6)
