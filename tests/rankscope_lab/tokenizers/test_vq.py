"""The VQ tokenizer: who learns from which term, how codes are used, what is saved."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rankscope.checkpoints import open_checkpoint
from rankscope.errors import DataError, OptionError, OutputError
from rankscope.families.models.totem import Totem
from rankscope.families.models.vector_quantiser import perplexity
from rankscope.io import codec
from rankscope_lab.tokenizers.parts import ScaledParts, tiles
from rankscope_lab.tokenizers.vq import VqSettings, VqTraining, score, train_vq

SMALL = {"codes": 8, "d_model": 4, "hidden": 8, "window": 24, "batch_size": 16, "epochs": 4}
BETA = 0.25


@pytest.fixture
def module() -> Totem:
    torch.manual_seed(0)
    built = Totem(VqSettings(**SMALL, decay=None).config()).double()
    torch.nn.init.normal_(built.quantiser.codebook.weight, std=0.05)
    return built


def latents_of(module: Totem, x: torch.Tensor) -> torch.Tensor:
    z = module.encode(x).detach()
    return z.requires_grad_()


def test_the_rebuilding_error_reaches_the_encoder_as_it_reaches_the_decoder(module: Totem) -> None:
    x = torch.randn(3, 24, dtype=torch.float64)
    z = latents_of(module, x)
    quantised = module.quantiser(z)
    into_decoder = quantised.straight.detach().requires_grad_()
    torch.testing.assert_close(into_decoder, module.quantiser.codebook(quantised.ids))
    (module.decode(into_decoder) - x).square().mean().backward()
    (module.decode(quantised.straight) - x).square().mean().backward()
    assert z.grad is not None
    torch.testing.assert_close(z.grad, into_decoder.grad)
    assert module.quantiser.codebook.weight.grad is None


def test_terms_two_and_three_by_a_slow_loop(module: Totem) -> None:
    x = torch.randn(3, 24, dtype=torch.float64)
    z = latents_of(module, x)
    quantised = module.quantiser(z)
    size = z.numel()  # the terms are means over components
    (size * (quantised.codebook_loss + BETA * quantised.commitment_loss)).backward()
    codes = module.quantiser.codebook.weight
    want_codes, want_z = torch.zeros_like(codes), torch.zeros_like(z)
    for b, t in np.ndindex(*quantised.ids.shape):
        nearest = min(range(8), key=lambda j: float((z[b, t] - codes[j]).detach().norm()))
        assert nearest == quantised.ids[b, t]
        want_codes[nearest] += 2 * (codes[nearest] - z[b, t]).detach()
        want_z[b, t] = 2 * BETA * (z[b, t] - codes[nearest]).detach()
    assert codes.grad is not None
    assert z.grad is not None
    torch.testing.assert_close(codes.grad, want_codes)
    torch.testing.assert_close(z.grad, want_z)
    unused = sorted(set(range(8)) - set(quantised.ids.flatten().tolist()))
    assert unused
    assert not codes.grad[unused].any()


def test_the_loss_is_minimised_not_the_likelihood(module: Totem) -> None:
    x = torch.randn(3, 24, dtype=torch.float64)
    out = module(x)
    error = (out.values - x).square().mean()
    want = error + out.quantised.codebook_loss + BETA * out.quantised.commitment_loss
    torch.testing.assert_close(out.loss, want)
    assert out.loss > error > 0


@pytest.mark.parametrize("how", [{}, {"decay": None}, {"decay": None, "revive": False}], ids=["ema", "revived", "loss"])
def test_training(small_parts: ScaledParts, how: dict[str, Any]) -> None:
    settings = VqSettings(**{**SMALL, "epochs": 8}, **how, learning_rate=3e-3)
    result = train_vq(small_parts, settings)
    errors = [point.validation.mse for point in result.points]
    assert errors[-1] < 0.95 * errors[0]
    assert result.test is not None
    assert result.codebook is not None
    assert result.test.used <= 8
    assert 1 <= result.test.perplexity <= result.test.used + 1e-9
    assert result.codebook.sigma == pytest.approx(np.linalg.svd(result.codes.numpy(), compute_uv=False).tolist())
    assert result.codebook.eps_ranks["0.1"] == int(
        (np.array(result.codebook.sigma) > 0.1 * result.codebook.sigma[0]).sum()
    )
    again = train_vq(small_parts, settings)
    assert again.points == result.points
    document = json.loads(codec.text(result))
    assert document["test"]["mse"] == result.test.mse


def test_scores_by_a_slow_loop(small_parts: ScaledParts) -> None:
    result = train_vq(small_parts, VqSettings(**SMALL))
    x = tiles(small_parts.test, 24)
    with torch.no_grad():
        rebuilt = [result.module(window[None]) for window in x]
    ids = torch.cat([one.quantised.ids for one in rebuilt])
    error = np.mean([float((one.values[0] - window).square().mean()) for one, window in zip(rebuilt, x, strict=True)])
    assert result.test is not None
    assert result.test.mse == pytest.approx(error, rel=1e-5)
    assert result.test.used == len(set(ids.flatten().tolist()))
    assert result.test.perplexity == pytest.approx(perplexity(ids, 8))
    assert result.stream is not None
    sigma = np.linalg.svd(result.codes.numpy().astype(np.float64)[ids.flatten()], compute_uv=False)
    assert result.stream.sigma == pytest.approx(sigma.tolist())
    assert torch.equal(score(result.module, x)[0], ids)


def test_tiles_lie_side_by_side_variable_by_variable() -> None:
    x = torch.arange(20.0).reshape(10, 2)
    assert tiles(x, 4, 1).tolist() == [[2, 4, 6, 8], [10, 12, 14, 16], [3, 5, 7, 9], [11, 13, 15, 17]]
    with pytest.raises(DataError, match="the part has 10 rows, one window takes 11"):
        tiles(x, 4, 7)


def test_unused_codes_start_again_at_latents_without_momentum(small_parts: ScaledParts) -> None:
    torch.manual_seed(0)
    settings = VqSettings(**SMALL, decay=None)
    run = VqTraining.begin(small_parts, settings)
    codes = run.module.quantiser.codebook.weight
    with torch.no_grad():
        codes[3:] = 1e3
    first = run.epoch(1)
    assert first.revived >= 5
    latents = run.module.encode(tiles(small_parts.train, 24)).flatten(0, 1)
    assert float(codes.detach().abs().max()) <= 2 * float(latents.detach().abs().max())
    last = dataclasses.replace(settings, epochs=2)
    run.settings = last
    with torch.no_grad():
        codes[3:] = 1e3
    assert run.epoch(2).revived == 0  # a code without training would be of no use


def test_a_revived_code_has_no_momentum_and_the_others_keep_theirs(small_parts: ScaledParts) -> None:
    torch.manual_seed(0)
    run = VqTraining.begin(small_parts, VqSettings(**SMALL, decay=None))
    run.epoch(1)
    codes = run.module.quantiser.codebook.weight
    state: Any = run.descent.adam.state[codes]
    before = {name: state[name].clone() for name in ("exp_avg", "exp_avg_sq")}
    dead = torch.zeros(len(codes), dtype=torch.bool)
    dead[::2] = True
    assert all((moment[dead] != 0).any() for moment in before.values())
    assert run.revive(dead, tiles(small_parts.train, 24)) == int(dead.sum())
    for name, moment in before.items():
        assert (state[name][dead] == 0).all()
        assert torch.equal(state[name][~dead], moment[~dead])


def test_codes_of_a_moving_average_get_no_gradient(small_parts: ScaledParts) -> None:
    torch.manual_seed(0)
    run = VqTraining.begin(small_parts, VqSettings(**SMALL))
    before = run.module.quantiser.codebook.weight.detach().clone()
    run.epoch(1)
    assert run.module.quantiser.codebook.weight.grad is None
    assert not torch.equal(run.module.quantiser.codebook.weight, before)


def test_a_saved_tokenizer_is_a_checkpoint(small_parts: ScaledParts, tmp_path: Path) -> None:
    result = train_vq(small_parts, VqSettings(**SMALL))
    folder = tmp_path / "tokens"
    result.save_pretrained(folder)
    checkpoint = open_checkpoint(str(folder))
    assert checkpoint.family.name == "totem"
    (site,) = checkpoint.sites("embedding")
    torch.testing.assert_close(checkpoint.matrix(site), result.codes)
    x = tiles(small_parts.test, 24)
    loaded: Any = checkpoint.module()
    with torch.no_grad():
        torch.testing.assert_close(loaded(x).values, result.module(x).values)
    assert json.loads((folder / "vq.json").read_text())["settings"]["codes"] == 8
    with pytest.raises(OutputError, match="exists already"):
        result.save_pretrained(folder)


def test_a_diverged_run_says_so(small_parts: ScaledParts, tmp_path: Path) -> None:
    broken = dataclasses.replace(small_parts, train=small_parts.train * 1e30)
    result = train_vq(broken, VqSettings(**SMALL))
    assert result.diverged
    assert result.test is None
    assert len(result.points) == 1
    assert codec.plain(result)["diverged"] is True
    with pytest.raises(OptionError, match="the run diverged"):
        result.save_pretrained(tmp_path / "none")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"codes": 0}, "codes is 0: it must be at least 1"),
        ({"compression": 6}, "power of two"),
        ({"window": 30}, "do not divide a window of 30"),
        ({"decay": 1.0}, "decay must lie between 0 and 1"),
        ({"revive": False}, "always revived"),
        ({"commitment": -1.0}, "commitment is -.*: it must be at least 0"),
    ],
)
def test_settings_that_cannot_be(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        VqSettings(**{**SMALL, **wrong})


@pytest.mark.parametrize("part", ["train", "validation", "test"])
def test_a_part_that_is_too_short(part: str, small_parts: ScaledParts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(VqTraining, "epoch")  # found before any of them
    short = dataclasses.replace(small_parts, **{part: getattr(small_parts, part)[:20]})
    with pytest.raises(DataError, match="the part has 20 rows, one window takes 24"):
        train_vq(short, VqSettings(**SMALL))
