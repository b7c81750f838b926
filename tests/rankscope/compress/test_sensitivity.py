"""Weights measured by cutting one thing alone: never below zero, zero where nothing depends on it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rankscope import open_checkpoint
from rankscope.checkpoints import Checkpoint
from rankscope.compress import Budget, CompressOptions, Spectrum, compress, sensitivity, taps
from rankscope.compress.apply import write_folder
from rankscope.compress.calibration import Calibration, CalibrationSet, calibrate, calibration_set
from rankscope.compress.calibration.passes import pass_inputs, questions
from rankscope.compress.calibration.sources import probe_set
from rankscope.compress.joint import PairCut
from rankscope.compress.methods import MatrixCut, svd
from rankscope.compress.plan import SitePlan
from rankscope.compress.prepare import Prepared, prepare, read_matrices
from rankscope.errors import OptionError
from rankscope.families import Site

KINDS = ("chronos-t5", "chronos-bolt", "t5")
HALF = Budget("attention-ratio", 0.5)


def texts(seed: int = 1) -> CalibrationSet:
    tokens = torch.randint(2, 60, (16, 28), generator=torch.Generator().manual_seed(seed)).float()
    return CalibrationSet("texts", tokens[:, :20], tokens[:, 20:])


Make = Callable[..., tuple[Checkpoint, Calibration]]


@pytest.fixture
def make(tmp_path: Path, write_checkpoint: Any, tiny_config: Any, random_tensors: Any) -> Make:
    """``make("t5", {"...v.weight": 0.0})``: a random model, some of its matrices scaled, and its moments."""

    def build(kind: str, scaled: dict[str, float] | None = None) -> tuple[Checkpoint, Calibration]:
        config = tiny_config(kind, num_decoder_layers=2)
        tensors = random_tensors(config)
        for name, factor in (scaled or {}).items():
            tensors[name] = tensors[name] * factor
        checkpoint = open_checkpoint(write_checkpoint(tmp_path / kind, config, tensors))
        series = texts() if kind == "t5" else calibration_set("kernelsynth:16", context=32, horizon=8)
        watched = tuple(site for site in checkpoint.sites(["all"]) if site.role != "embedding")
        return checkpoint, calibrate(checkpoint, series, sites=watched)

    return build


@contextlib.contextmanager
def replaced(module: nn.Module, matrices: dict[Site, Tensor]) -> Iterator[None]:
    """Let linear layers apply other matrices while the block runs."""

    def applies(matrix: Tensor) -> Callable[..., Tensor]:
        return lambda layer, args, _: nn.functional.linear(args[0], matrix.to(args[0]), layer.bias)

    handles = [module.get_submodule(site.module).register_forward_hook(applies(w)) for site, w in matrices.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def options(kind: str, moments: Calibration | None, **changes: Any) -> CompressOptions:
    probe = None if "allocation" in changes else texts(2) if kind == "t5" else "kernelsynth:6"
    how = {
        "sites": "attention",
        "method": "joint",
        "allocation": "sensitivity",
        "calibration": moments,
        "probe": probe,
        **changes,
    }
    return CompressOptions(**how, refine=False)


def worth_of(found: Prepared) -> dict[tuple[str, str, int], Tensor]:
    return {(one.name, one.pair, one.head): one.worth for one in found.flat if one.worth is not None}


@pytest.mark.parametrize("kind", KINDS)
def test_worth_falls_is_not_negative_and_repeatable(kind: str, make: Make) -> None:
    checkpoint, moments = make(kind)
    prepared = prepare(checkpoint, options(kind, moments))
    worth = worth_of(prepared)
    assert len(worth) == len(prepared.flat)
    assert all(bool((each >= 0).all()) and bool((each.diff() <= 1e-15).all()) for each in worth.values())
    assert sum(float(each.sum()) > 0 for each in worth.values()) >= len(worth) / 2
    again = worth_of(prepare(checkpoint, options(kind, moments)))
    assert all(torch.equal(each, again[name]) for name, each in worth.items())


@pytest.mark.parametrize("kind", KINDS)
def test_what_nothing_depends_on_is_worth_nothing(kind: str, make: Make) -> None:
    """Values of an attention are zero: neither what it writes nor what it looks at matters."""
    attention = "encoder.block.1.layer.0.SelfAttention"
    checkpoint, moments = make(kind, {f"{attention}.v.weight": 0.0})
    worth = worth_of(prepare(checkpoint, options(kind, moments)))
    assert all(float(worth[attention, pair, head].sum()) == 0.0 for pair in ("qk", "vo") for head in range(2))
    assert float(worth["encoder.block.0.layer.0.SelfAttention", "vo", 0].sum()) > 0


def test_a_decoder_of_one_token_needs_no_queries(make: Make) -> None:
    checkpoint, moments = make("chronos-bolt")
    worth = worth_of(prepare(checkpoint, options("chronos-bolt", moments)))
    assert float(worth["decoder.block.0.layer.0.SelfAttention", "qk", 0].sum()) == 0.0
    assert float(worth["decoder.block.0.layer.0.SelfAttention", "vo", 0].sum()) > 0.0


@pytest.mark.parametrize("method", ["svd", "whitened"])
@pytest.mark.parametrize("kind", [*KINDS, "chronos-2"])
def test_single_matrices_of_every_family(kind: str, method: str, make: Make) -> None:
    checkpoint, moments = make(kind)
    how = options(kind, moments if method == "whitened" else None, method=method)
    worth = worth_of(prepare(checkpoint, how))
    assert worth.keys() == {(site.name, "", 0) for site in checkpoint.sites()}
    assert all(bool((each >= 0).all()) for each in worth.values())
    assert any(float(each.sum()) > 0 for each in worth.values())


def losses(inputs: dict[str, Any], exact: Tensor, moved: Tensor) -> Tensor:
    """KL divergence at every real position, or squared change of every quantile in units of its series' spread."""
    if "context" in inputs:
        return ((moved - exact) / sensitivity.unit_of(exact)).square().flatten()
    each, real = divergence(exact, moved), inputs.get("decoder_attention_mask")
    return each.flatten() if real is None else each[real > 0]


def divergence(exact: Tensor, moved: Tensor) -> Tensor:
    p, q = (logits.double().log_softmax(dim=-1) for logits in (exact, moved))
    return (p.exp() * (p - q)).sum(dim=-1)


def suffered(prepared: Prepared, matrices: dict[Site, Tensor], share: float) -> float:
    """The loss with other matrices, over share²."""
    module = prepared.source.module().double()
    far = total = 0.0
    for inputs, _ in questions(prepared.source, module, probe_set(prepared.source, prepared.how), 16):
        inputs = {key: widened(value) for key, value in inputs.items()}
        exact = exactly(module, inputs)
        with replaced(module, matrices):
            each = losses(inputs, exact, exactly(module, inputs))
        far, total = far + float(each.sum()), total + each.numel()
    return far / total / share**2


@torch.no_grad()
def cut_alone(prepared: Prepared, cut: MatrixCut, spectrum: Spectrum, rank: int, share: float) -> float:
    """One by one, the slow way: the loss when the last terms of a matrix go by a share of the way."""
    whole = read_matrices(prepared.source, cut)
    made = cut.stand_ins(whole, [SitePlan(spectrum, rank, rank, True)])
    return suffered(prepared, {site: toward(whole[site], made[site], share) for site in made}, share)


def widened(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def exactly(module: Any, inputs: dict[str, Any]) -> Tensor:
    found = module(**inputs)
    return found.quantile_preds if "context" in inputs else found.logits


def toward(whole: Any, cut: Tensor, share: float) -> Tensor:
    return whole.double() + share * (cut.double() - whole.double())


@pytest.fixture
def exact_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many draws, and every term by itself."""
    monkeypatch.setattr(sensitivity, "DRAWS", 100)
    monkeypatch.setattr(taps, "falling", lambda worth: worth)


@pytest.mark.usefixtures("exact_worth")
@pytest.mark.parametrize(
    "kind", ["chronos-2", KINDS[0], *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[1:])]
)
def test_one_pass_agrees_with_cutting_one_matrix_by_a_little(kind: str, make: Make) -> None:
    """The law: near the full model the loss is half the quadratic form of the gates, whatever is cut."""
    checkpoint, moments = make(kind)
    prepared = prepare(checkpoint, options(kind, moments, method="whitened"))
    roles = ("encoder.block.1.layer.0.SelfAttention.o", "decoder.block.1.layer.1.EncDecAttention.v")
    if kind == "chronos-2":  # series of a group feel one another's cuts
        roles = tuple(f"encoder.block.0.layer.{n}.self_attention.{w}" for n, w in ((0, "v"), (1, "o")))
    for cut, (spectrum,) in zip(prepared.cuts, prepared.spectra, strict=True):
        if cut.module in roles:
            assert isinstance(cut, MatrixCut)
            assert spectrum.worth is not None
            expected = cut_alone(prepared, cut, spectrum, len(spectrum.worth) - 1, 0.01)  # all but the last term stay
            assert float(spectrum.worth[-1]) == pytest.approx(expected, rel=0.25), cut.module


@pytest.mark.slow
@pytest.mark.usefixtures("exact_worth")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pair", ["qk", "vo"])
def test_one_pass_agrees_with_cutting_one_head_by_a_little(kind: str, pair: str, make: Make) -> None:
    """A head's last term, gated in its queries or in what it hands on; unequal heads would not change the argument."""
    checkpoint, moments = make(kind)
    prepared = prepare(checkpoint, options(kind, moments))
    parts = zip(prepared.cuts, prepared.spectra, strict=True)
    cut, spectra = next(part for part in parts if isinstance(part[0], PairCut) and part[0].pair == pair)
    assert isinstance(cut, PairCut)
    assert spectra[1].worth is not None
    assert float(spectra[1].worth[-1]) == pytest.approx(gated_by_hand(prepared, cut, 1, 0.01), rel=0.25)


@torch.no_grad()
def gated_by_hand(prepared: Prepared, cut: PairCut, head: int, share: float) -> float:
    """The loss when the last term between the two matrices of a head goes by a share of the way."""
    whole = read_matrices(prepared.source, cut)
    inner, width = cut.terms(whole)[head], cut.heads[head]
    part = slice(width * head, width * (head + 1))
    less = torch.eye(width, dtype=torch.float64) - share * inner.up[:, -1:] @ inner.down[-1:]
    site = cut.first if cut.pair == "qk" else cut.second
    changed = whole[site].double().clone()  # type: ignore[union-attr]
    if cut.pair == "qk":  # scores q less k
        changed[part] = less.mT @ changed[part]
    else:  # outputs W_o less a
        changed[:, part] = changed[:, part] @ less
    return suffered(prepared, {site: changed}, share)


def test_worth_is_that_of_the_terms_that_are_written(make: Make) -> None:
    """Values and outputs are decomposed in the norm of their output-gradient moment; all terms are the whole head."""
    checkpoint, moments = make("chronos-bolt")
    before = prepare(checkpoint, options("chronos-bolt", moments, allocation="energy"))
    after = prepare(checkpoint, options("chronos-bolt", moments))
    pairs = list(zip(before.flat, after.flat, strict=True))
    assert all(torch.equal(one.sigma, two.sigma) for one, two in pairs if one.pair == "qk")
    assert any(not torch.equal(one.sigma, two.sigma) for one, two in pairs)
    for cut in after.cuts:
        assert isinstance(cut, PairCut)
        for inner in cut.terms(read_matrices(checkpoint, cut)) if cut.pair == "vo" else ():
            torch.testing.assert_close(inner.up @ inner.down, torch.eye(len(inner.up)).double(), rtol=0, atol=1e-6)


def test_terms_out_of_order_share_what_they_are_worth() -> None:
    worth = torch.rand(20, generator=torch.Generator().manual_seed(3)).double()
    found = taps.falling(worth)
    assert bool((found.diff() <= 0).all())
    assert float(found.sum()) == pytest.approx(float(worth.sum()))
    # the sums of the last terms never exceed those of what was measured, and meet them at the ends of the blocks
    below = worth.flip(0).cumsum(0) - found.flip(0).cumsum(0)
    assert float(below.min()) > -1e-12
    torch.testing.assert_close(taps.falling(found), found)


@pytest.mark.parametrize("kind", KINDS)
def test_stand_ins_answer_as_the_written_folder_does(kind: str, make: Make, tmp_path: Path) -> None:
    """Zeros in place of what a head loses: same shapes, same answers; and afterwards all is as it was."""
    checkpoint, moments = make(kind)
    prepared = prepare(checkpoint, options(kind, moments, allocation="energy"))
    plan = prepared.by_budget(HALF)
    write_folder(prepared, plan, tmp_path / "small")
    matrices: dict[Site, Tensor] = {}
    for cut, plans in prepared.planned(plan):
        if any(one.changed for one in plans):
            matrices |= cut.stand_ins(read_matrices(checkpoint, cut), plans)
    module = checkpoint.module()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    series = texts() if kind == "t5" else calibration_set("kernelsynth:4", context=32, horizon=8)

    def answer(model: Any) -> Tensor:
        inputs = pass_inputs(model, checkpoint.family, series.context, series.future)
        with torch.no_grad():
            found = model(**inputs)
        return found.quantile_preds if kind == "chronos-bolt" else found.logits

    exact = answer(module)
    with replaced(module, matrices):
        torch.testing.assert_close(
            answer(module), answer(open_checkpoint(tmp_path / "small").module()), rtol=1e-4, atol=1e-4
        )
        assert not torch.allclose(answer(module), exact, rtol=1e-2)
    assert torch.equal(answer(module), exact)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())


def tight(prepared: Prepared, ratio: float = 0.4) -> dict[str, int]:
    limit = Budget("attention-ratio", ratio)
    plans = prepared.by_budget(limit).sites
    return {f"{one.spectrum.name} {one.spectrum.pair} {one.spectrum.head}": one.rank for one in plans}


USELESS = "encoder.block.1.layer.0.SelfAttention"
UNHEARD = {  # the last attention of the encoder writes a lot, and no cross-attention lets anything of it through
    f"{USELESS}.v.weight": 30.0,
    "decoder.block.0.layer.1.EncDecAttention.v.weight": 0.0,
    "decoder.block.1.layer.1.EncDecAttention.v.weight": 0.0,
}


def test_the_plan_moves_ranks_to_where_the_answers_suffer(make: Make) -> None:
    """What is loud and never heard is fed by energy and starved by sensitivity."""
    checkpoint, moments = make("chronos-t5", UNHEARD)
    by_energy, by_sensitivity = (
        tight(prepare(checkpoint, options("chronos-t5", moments, allocation=name)))
        for name in ("energy", "sensitivity")
    )

    def total(plan: dict[str, int], part: str) -> int:
        return sum(rank for name, rank in plan.items() if part in name)

    assert total(by_energy, f"{USELESS} vo") > 2
    assert total(by_sensitivity, USELESS) == 4  # one for each head of each pair: the least
    assert total(by_sensitivity, "decoder.block.0.layer.0") > total(by_energy, "decoder.block.0.layer.0")


def test_compress_measures_by_itself_and_loses_less(make: Make, tmp_path: Path) -> None:
    checkpoint, moments = make("chronos-t5", UNHEARD)
    seen: set[str] = set()
    errors = {}
    series = calibration_set("kernelsynth:8", context=32, horizon=8, seed=77)

    def answer(model: Checkpoint) -> Tensor:
        module = model.module()
        with torch.no_grad():
            return module(**pass_inputs(module, model.family, series.context, series.future)).logits

    for name, probe in (("energy", None), ("sensitivity", "kernelsynth:8")):
        report = compress(
            checkpoint,
            CompressOptions(attention_ratio=0.4, method="joint", allocation=name, calibration=moments, probe=probe),
            out=tmp_path / name,
            progress=lambda done, total, what: seen.add(what),
        )
        assert report.allocation == name
        assert report.selected_ratio <= 0.4
        near = answer(open_checkpoint(tmp_path / name))
        errors[name] = float(divergence(answer(checkpoint), near).mean())
    assert "sensitivity" in seen
    assert errors["sensitivity"] < 0.7 * errors["energy"]


def test_a_probe_that_nothing_reads_is_refused(make: Make) -> None:
    checkpoint, moments = make("chronos-t5")
    with pytest.raises(OptionError, match="a probe has no effect with allocation energy: leave it out, or take sens"):
        prepare(checkpoint, options("chronos-t5", moments, allocation="energy", probe="kernelsynth:6"))


def test_a_text_model_needs_tokens(make: Make) -> None:
    checkpoint, moments = make("t5")
    with pytest.raises(OptionError, match="give a probe, text:FILE") as caught:
        prepare(checkpoint, options("t5", moments, probe=None))
    assert "\n" not in str(caught.value)


def test_the_unit_of_quantiles_is_their_spread_and_survives_constant_series() -> None:
    exact = torch.tensor([[[1.0, 1.0], [3.0, 5.0]]])
    assert sensitivity.unit_of(exact).item() == 3.0  # outer quantiles are 2 and 4 apart
    torch.testing.assert_close(sensitivity.unit_of(1e4 * exact), 1e4 * sensitivity.unit_of(exact))
    assert sensitivity.unit_of(torch.full((1, 2, 2), 5.0)).item() == pytest.approx(0.005)
    assert sensitivity.unit_of(torch.zeros(1, 2, 2)).item() > 0


def test_a_tap_looks_at_the_inputs_of_its_own_pass() -> None:
    """Inputs are multiplied once for all backward passes of a forward pass, and anew for the next one."""
    generator = torch.Generator().manual_seed(0)
    layer = nn.Sequential(nn.Linear(4, 3, bias=False))
    terms = svd(layer.get_parameter("0.weight").detach())
    tap = taps.MatrixTap("0", terms)
    want = torch.zeros(3)
    with taps.watched(layer, [tap]):
        for _ in range(2):
            x = torch.randn(2, 5, 4, generator=generator)
            layer(x)
            for _ in range(2):
                gradient = torch.randn(2, 5, 3, generator=generator)
                tap.take(gradient, torch.arange(2))
                want += ((x @ terms.down.mT) * (gradient @ terms.up)).sum(dim=1).square().sum(dim=0)
    torch.testing.assert_close(tap.worth[0].float(), want)
    assert tap.activations is None
