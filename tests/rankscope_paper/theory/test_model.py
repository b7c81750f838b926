"""The theorems on a trained checkpoint: what applies holds, what does not says why, with numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from rankscope.checkpoints import open_checkpoint
from rankscope.errors import OptionError
from rankscope_paper import bounds
from rankscope_paper.theory.check import CheckResult
from rankscope_paper.theory.checks import CHECKS
from rankscope_paper.theory.model import check_model
from rankscope_paper.theory.run import run_theory


@pytest.fixture(scope="module")
def results() -> dict[str, CheckResult]:
    """On the bundled Chronos-Bolt."""
    return {result.id: result for result in check_model(open_checkpoint("bundled-bolt"), n=2)}


def test_what_applies_holds(results: dict[str, CheckResult]) -> None:
    assert set(results) == set(CHECKS)
    assert [name for name, result in results.items() if result.applies] == ["thm2", "thm3", "thm5"]
    for name in ("thm2", "thm3", "thm5"):
        assert results[name].passed
        assert 0 < results[name].worst_ratio < 1
    assert "with the row of ones its rank is k = 17" in results["thm2"].notes[1]


def test_hypotheses_that_fail_are_named_with_numbers(results: dict[str, CheckResult]) -> None:
    weights = [
        t.double()
        for site in open_checkpoint("bundled-bolt").sites("v")
        if site.stack == "encoder"
        for t in open_checkpoint("bundled-bolt").tensor(site.name).chunk(4)
    ]
    largest = max(float(torch.linalg.matrix_norm(w, 2)) for w in weights)
    assert f"max_i ‖W_V^(i)‖ = {largest:.3g} > 1" in results["thm4-upper"].unmet
    assert "√D = 2 < 2e²h = 59.1" in results["thm4-upper"].unmet
    assert "d = 256 > L = 33" in results["thm4-upper"].unmet
    assert results["thm4-upper"].instances == 0
    assert "patch of k = 16" in results["thm1i"].unmet[0]
    with pytest.raises(OptionError, match=r"hypotheses of Theorem 4 \(i\) are not met by bundled-bolt: d = 256 > L"):
        run_theory(["thm4-upper"], checkpoint=open_checkpoint("bundled-bolt"), quick=True)


def test_a_broken_bound_fails_on_the_model_too(monkeypatch: pytest.MonkeyPatch) -> None:
    good = bounds.theorem5_upper
    monkeypatch.setattr(bounds, "theorem5_upper", lambda *args, **facts: good(*args, **facts) / 20)
    (result,) = check_model(open_checkpoint("bundled-bolt"), ["thm5"], n=1)
    assert not result.passed


def test_an_embedding_of_another_form_is_found_out(
    tiny_config: Callable[..., Any],
    write_checkpoint: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = write_checkpoint(tmp_path / "bolt", tiny_config("chronos-bolt"))
    checkpoint = open_checkpoint(folder)
    module = checkpoint.module()
    monkeypatch.setattr(type(checkpoint), "module", lambda self: module)
    (stock,) = check_model(checkpoint, ["thm2"], n=2, length=32)
    assert stock.unmet == ()

    class Doubled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * x.relu()

    module.input_patch_embedding.act = Doubled()
    (doubled,) = check_model(checkpoint, ["thm2"], n=2, length=32)
    assert "|ω(x)| ≤ |x| fails by" in doubled.unmet[0]


def test_a_quantised_vocabulary_is_out_of_reach_of_theorem_1() -> None:
    results = {one.id: one for one in check_model(open_checkpoint("bundled"), ["thm1i", "cor2", "thm2"], n=1)}
    assert "a table of vectors" in results["thm1i"].unmet[0]
    assert "no two-layer residual MLP" in results["thm2"].unmet[0]
    assert len(results["cor2"].unmet) == 2


def test_experiments_and_text_models_are_refused(
    tiny_config: Callable[..., Any], write_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match="leave out --model"):
        run_theory(["f1"], checkpoint=open_checkpoint("bundled"))
    folder = write_checkpoint(tmp_path / "t5", tiny_config("t5"))
    with pytest.raises(OptionError, match="does not read series"):
        check_model(open_checkpoint(folder))


@pytest.mark.parametrize(
    ("model", "unmet"),
    [
        ("bundled-patchtst", "q_proj.weight has a bias"),
        ("bundled-autoformer", "q_proj.weight has a bias"),
        ("bundled-patchtsmixer", "the model has no encoder self-attention"),
        ("bundled-totem", "the model has no encoder self-attention"),
    ],
)
def test_attention_of_another_form_is_out_of_reach(model: str, unmet: str) -> None:
    results = check_model(open_checkpoint(model), ["thm2", "thm3", "cor1"], n=1, length=96)
    assert [one.applies for one in results] == [False] * 3
    assert all(unmet in one.unmet[0] for one in results[1:])


def test_a_single_layer_within_the_hypotheses_is_evaluated(
    tiny_config: Callable[..., Any], write_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    config = tiny_config("chronos-t5", num_layers=1, d_kv=8)
    folder = write_checkpoint(tmp_path / "flat", config)
    weights = load_file(folder / "model.safetensors")
    attention = "encoder.block.0.layer.0.SelfAttention"
    for letter, size in (("q", 1e-6), ("v", 0.1)):
        weights[f"{attention}.{letter}.weight"] *= size / weights[f"{attention}.{letter}.weight"].norm()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    (result,) = check_model(open_checkpoint(folder), ["cor1"], n=2, length=32)
    assert result.unmet == ()
    assert result.instances == 2
    assert result.passed
    # W_V is so small that Z is nearly U: the first ratio is 1 over the bound's constant
    assert result.worst_ratio == pytest.approx(1 / (1 + bounds.head_factor(2)), rel=0.1)
