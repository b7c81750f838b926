from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from rankscope import load_pipeline
from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.compress.calibration import CalibrationSet, calibration_set
from rankscope.errors import DataError, FamilyError
from rankscope_eval.metrics import QUANTILES
from rankscope_eval.tradeoff.overlap import (
    mean_overlap,
    quantile_distance,
    quantile_forecasts,
    teacher_passes,
    top_tokens,
)


@pytest.fixture
def generated() -> CalibrationSet:
    """Five histories, some of which are filled up on the left."""
    series = calibration_set("mixture:5", context=32, horizon=8, seed=1)
    assert torch.isnan(series.context).any()
    return series


@pytest.fixture
def pair(tmp_path: Path, write_checkpoint: Callable[..., Path], tiny_config, random_tensors) -> Callable[..., list]:
    """``pair("chronos-t5")``: two checkpoints with other weights."""

    def make(kind: str) -> list[Checkpoint]:
        config = tiny_config(kind)
        return [
            open_checkpoint(write_checkpoint(tmp_path / f"{kind}-{seed}", config, random_tensors(config, seed)))
            for seed in (0, 1)
        ]

    return make


def slow_overlap(first, second, family, series: CalibrationSet) -> float:
    """One series at a time, one position at a time, with Python's sets."""
    found = []
    for row in series.context:
        inputs = family.model_inputs(first, row[None])
        with torch.no_grad():
            a, b = (module(**inputs).logits[0].double().numpy() for module in (first, second))
        for position, real in enumerate(inputs["attention_mask"][0].tolist()):
            if real:
                one, other = (set(np.argsort(-logits[position])[:10].tolist()) for logits in (a, b))
                found.append(len(one & other) / len(one | other))
    return float(np.mean(found))


def test_overlap_equals_a_slow_loop(pair, generated) -> None:
    first, second = pair("chronos-t5")
    one, other = first.module(), second.module()
    a, b = (top_tokens(module, first.family, generated, batch_size=2) for module in (one, other))
    expected = slow_overlap(one, other, first.family, generated)
    assert 0 < expected < 0.9
    assert mean_overlap(a, b) == pytest.approx(expected, rel=1e-12)
    assert mean_overlap(a, a) == 1.0


def test_padding_is_left_out(pair, generated) -> None:
    (checkpoint, _) = pair("chronos-t5")
    observed = int(torch.isfinite(generated.context).sum())
    tokens = top_tokens(checkpoint.module(), checkpoint.family, generated)
    assert tokens.shape == (observed + len(generated), 10)  # and the end token of every series


def test_a_text_model_reads_what_follows(pair) -> None:
    (checkpoint, _) = pair("t5")
    module = checkpoint.module()
    ids = torch.randint(2, 64, (3, 12), generator=torch.Generator().manual_seed(0)).float()
    ids[0, 10:] = 0  # padding at the end of what follows
    windows = CalibrationSet("text", ids[:, :8], ids[:, 8:])
    (batch,) = teacher_passes(module, checkpoint.family, windows)
    assert batch.labels.tolist() == ids[:, 8:].tolist()
    assert batch.inputs["decoder_input_ids"].tolist() == [[0.0, *row[8:11]] for row in ids.tolist()]
    assert int(batch.real.sum()) == 10
    assert len(top_tokens(module, checkpoint.family, windows)) == 10


def test_a_vocabulary_smaller_than_ten(tmp_path, write_checkpoint, tiny_config) -> None:
    checkpoint = open_checkpoint(write_checkpoint(tmp_path / "few", tiny_config("t5", vocab_size=6)))
    windows = CalibrationSet("text", torch.full((2, 4), 3.0), torch.full((2, 2), 4.0))
    tokens = top_tokens(checkpoint.module(), checkpoint.family, windows)
    assert tokens.shape == (4, 6)
    assert mean_overlap(tokens, tokens.flip(1)) == 1.0


def test_models_that_cannot_be_compared_say_so(pair, generated) -> None:
    bolt, _ = pair("chronos-bolt")
    with pytest.raises(FamilyError, match="no tokens"):
        top_tokens(bolt.module(), bolt.family, generated)
    t5, _ = pair("chronos-t5")
    module = t5.module()
    torch.nn.init.constant_(module.lm_head.weight, float("inf"))
    with pytest.raises(DataError, match="NaN or Inf"):
        top_tokens(module, t5.family, generated)
    nothing = torch.zeros(0, 10, dtype=torch.int32)
    with pytest.raises(DataError, match="padding"):
        mean_overlap(nothing, nothing)


@pytest.mark.parametrize("kind", ["chronos-bolt", "chronos-2"])
def test_distance_of_quantiles_equals_a_slow_loop(pair, generated, kind: str) -> None:
    pipelines = [load_pipeline(one.folder) for one in pair(kind)]
    a, b = (quantile_forecasts(pipeline, generated.context, 8, QUANTILES, batch_size=2) for pipeline in pipelines)
    whole = []
    for row, one, other in zip(generated.context.numpy(), a.numpy(), b.numpy(), strict=True):
        deviation = np.nanstd(row.astype(np.float64))
        distances = [abs(float(one[t, q]) - float(other[t, q])) for t in range(8) for q in range(9)]
        if deviation > 0:  # the mixture has constant histories, too
            whole.append(np.mean(distances) / deviation)
    assert a.shape == (5, 8, 9)
    assert quantile_distance(a, b, generated.context) == pytest.approx(np.mean(whole), rel=1e-9)
    assert quantile_distance(a, a, generated.context) == 0.0


def test_histories_without_a_unit_are_left_out() -> None:
    context = torch.tensor([[5.0, 5.0, 5.0], [0.0, 2.0, 4.0]])
    a, b = torch.zeros(2, 1, 1), torch.ones(2, 1, 1)
    assert quantile_distance(a, b, context) == pytest.approx(1 / np.std([0, 2, 4]))
    with pytest.raises(DataError, match="constant"):
        quantile_distance(a[:1], b[:1], context[:1])
