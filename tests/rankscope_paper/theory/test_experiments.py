"""App. F: fast formulas against the paper's own, small runs, and what the saved results of published size show."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
import torch

from rankscope.errors import OptionError
from rankscope.io import codec
from rankscope_paper.bounds import multi_head_attention, projected
from rankscope_paper.experiments import EXPERIMENTS, F1Result, run_experiment, run_f1
from rankscope_paper.experiments.f1 import F1Size
from rankscope_paper.experiments.f2 import sketch_distance, sparse_sketch
from rankscope_paper.experiments.matrices import (
    gaussian,
    generator,
    log_uniform,
    orthonormal,
    random_layer,
    truncation_errors,
)
from rankscope_paper.theory.run import judge

SMALL = F1Size(40, 160, 6, 12, (32, 64, 128), 4, 6.0, 12)


def test_truncation_is_that_of_theorem_3() -> None:
    d, tokens, sigma = 12, 300, log_uniform(12, 1e-2)
    layer = random_layer(generator(5), sigma, tokens)
    rng = generator(5)
    u, v = orthonormal(rng, d, d), orthonormal(rng, tokens, d)
    q, k, w = (gaussian(rng, d, d) for _ in range(3))
    q, k = q * d**-0.25, k * d**-0.25
    x = u * torch.from_numpy(sigma) @ v.mT
    whole = multi_head_attention(x, q, k, w, 1)
    expected = []
    for rank in (1, 2, 7, 11):
        cut = [projected(one, u[:, :rank]) for one in (q, k, w)]
        expected.append(float(torch.linalg.matrix_norm(whole - multi_head_attention(x, *cut, 1))))
    np.testing.assert_allclose(truncation_errors(layer, [1, 2, 7, 11]), expected, rtol=2e-4)


def test_the_distance_does_not_depend_on_the_length() -> None:
    rng, d = generator(1), 24
    sigma, u = log_uniform(d, 1e-3), orthonormal(rng, d, d)
    sketch = sparse_sketch(rng, 6, d, 4)
    assert (sketch != 0).sum(1).tolist() == [6] * 6
    for tokens in (24, 90):
        x = u * torch.from_numpy(sigma) @ orthonormal(rng, tokens, d).mT
        basis = torch.linalg.qr(x.mT @ sketch.mT).Q
        direct = torch.linalg.matrix_norm(basis @ (basis.mT @ x.mT) - x.mT, 2)
        assert sketch_distance(sigma, sketch, u) == pytest.approx(float(direct), rel=1e-8)


@pytest.mark.parametrize("shape", [(40, 7), (40, 40)])
def test_orthonormal_columns(shape: tuple[int, int]) -> None:
    q = orthonormal(generator(0), *shape)
    torch.testing.assert_close(q.mT @ q, torch.eye(shape[1], dtype=torch.float64), rtol=0, atol=1e-13)


def test_a_small_run_of_f1_is_saved_and_read(tmp_path: Any) -> None:
    result = run_f1(size=SMALL)
    assert codec.plain(run_f1(size=SMALL)) == codec.plain(result)
    back = codec.parse(F1Result, codec.plain(result))
    assert codec.plain(back) == codec.plain(result)
    assert [len(run.ranks) for run in result.readings[0].runs] == [39, 12, 12, 12, 12, 12]
    # the slope at all ranks of a short spectrum follows the norm of all that is cut, not σ_{r+1}
    assert result.readings[1].slope_tail.low < 1 < result.readings[1].slope_tail.high
    assert len(result.to_frame()) == 2 * (39 + 5 * 12) + 3 * 12


@pytest.mark.parametrize("name", ["f2", "f3"])
def test_quick_runs_show_what_they_are_to_show(name: str) -> None:
    result, check = judge(name, run_experiment, quick=True, seed=0)
    assert check.passed
    assert codec.plain(codec.parse(type(result), codec.plain(result))) == codec.plain(result)
    assert len(result.to_frame()) > 0


@pytest.mark.parametrize("name", ["f1", "f2", "f3"])
def test_saved_results_have_the_published_size_and_show_it(name: str) -> None:
    data = json.loads(files("rankscope_paper.figures").joinpath(f"data/{name}.json").read_text(encoding="utf-8"))
    result = codec.parse(EXPERIMENTS[name].kind, data)
    assert not result.quick
    assert result.d_model == {"f1": 512, "f2": 2048, "f3": 512}[name]
    assert result.tokens == {"f1": 4096, "f2": 4096, "f3": 2048}[name]
    _, check = judge(name, lambda *_, **__: result, quick=False, seed=0)
    assert check.passed, check


def test_a_slope_that_is_off_fails() -> None:
    from dataclasses import replace

    result = run_f1(size=SMALL)
    slope = replace(result.width.slope, value=0.6)
    off = replace(result, width=replace(result.width, slope=slope))
    _, check = judge("f1", lambda *_, **__: off, quick=True, seed=0)
    assert not check.passed


def test_bad_input() -> None:
    with pytest.raises(OptionError, match="choose from f1, f2, f3"):
        run_experiment("f9")
