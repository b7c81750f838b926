"""Sliced residual streams: exact at full width, the projected model below it, and each part of the algebra needed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rankscope import load_pipeline, open_checkpoint
from rankscope.checkpoints import Checkpoint
from rankscope.compress import CompressOptions, compress
from rankscope.compress.calibration import CalibrationSet, calibrate, calibration_set
from rankscope.compress.calibration.passes import answer, gives_quantiles, pass_inputs, questions
from rankscope.compress.refine import RIDGES, refine
from rankscope.compress.sensitivity import probed, scores, unit_of
from rankscope.compress.slicing import Slicing, plan_widths, write_sliced
from rankscope.compress.stream import Basis, StreamTap, basis, measure
from rankscope.engine import silent
from rankscope.errors import CheckpointError, DataError, OptionError, OutputError
from rankscope.families import Factored, HeadWidth, Layout
from rankscope.families.stream import points, read_widths, sliced
from rankscope.families.weight_layout import low_rank_config

KINDS = ("chronos-t5", "t5", "t5-gated", "chronos-bolt", "chronos-2")
Toy = Callable[[str], tuple[Checkpoint, CompressOptions, dict[str, Basis]]]


def series_for(kind: str) -> CalibrationSet:
    if kind.startswith("t5"):
        tokens = torch.randint(2, 60, (12, 28), generator=torch.Generator().manual_seed(1)).float()
        return CalibrationSet("texts", tokens[:, :20], tokens[:, 20:])
    return calibration_set("kernelsynth:12", context=32, horizon=8)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory, write_checkpoint: Any, tiny_config: Any, random_tensors: Any) -> Toy:
    """A random model whose norms have gains of every size, options, and the coordinates of its streams."""
    made: dict[str, tuple[Checkpoint, CompressOptions, dict[str, Basis]]] = {}

    def get(kind: str) -> tuple[Checkpoint, CompressOptions, dict[str, Basis]]:
        if kind not in made:
            config = tiny_config(kind, layer_norm_epsilon=0.1)  # large enough to be missed
            tensors = random_tensors(config)
            for name in tensors:
                if name.endswith("layer_norm.weight"):
                    tensors[name] = 0.5 + torch.rand(len(tensors[name]), generator=torch.Generator().manual_seed(7))
            source = open_checkpoint(write_checkpoint(tmp_path_factory.mktemp(kind) / "m", config, tensors))
            series = series_for(kind)
            how = CompressOptions(method="stream", ratio=0.5, calibration=series, probe=series, refine=False)
            made[kind] = source, how, measure(source, how, silent)
        return made[kind]

    return get


def answers(model: Checkpoint | Path, kind: str) -> Tensor:
    source = model if isinstance(model, Checkpoint) else open_checkpoint(model)
    module: Any = source.module()
    series = series_for(kind)
    with torch.no_grad():
        return answer(module, pass_inputs(module, source.family, series.context[:5], series.future[:5]))


def distance(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).norm() / exact.norm())


def full(bases: Mapping[str, Basis]) -> dict[str, int]:
    return {point: len(one.sigma) for point, one in bases.items()}


def narrow(bases: Mapping[str, Basis]) -> dict[str, int]:
    """Another width at every point."""
    return {point: 5 + number % 4 for number, point in enumerate(bases)}


@contextlib.contextmanager
def projected(module: Any, bases: Mapping[str, Basis], widths: Mapping[str, int]) -> Iterator[None]:
    """A stock model whose stream is projected, at its full width, wherever a sublayer or a final norm reads it."""
    handles = []
    for point, width in widths.items():
        a, b = bases[point].at(width)
        both = (a @ b).float()

        def hook(_: Any, args: tuple[Any, ...], both: Tensor = both) -> tuple[Any, ...]:
            return (args[0] @ both.mT, *args[1:])

        handles.append(module.get_submodule(point).register_forward_pre_hook(hook))
    yield
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("kind", KINDS)
def test_all_coordinates_reproduce_the_model(kind: str, toy: Toy, tmp_path: Path) -> None:
    source, how, bases = toy(kind)
    exact = answers(source, kind)
    assert float(exact.std()) > 1e-3
    for refitted in (False, True):
        out = tmp_path / f"full-{refitted}"
        write_sliced(Slicing(source), bases, full(bases), replace(how, refine=refitted), out=out)
        assert distance(answers(out, kind), exact) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_a_narrow_stream_is_the_projected_one(kind: str, toy: Toy, tmp_path: Path) -> None:
    source, how, bases = toy(kind)
    widths = narrow(bases)
    report = write_sliced(Slicing(source), bases, widths, how, out=tmp_path / "narrow")
    module: Any = source.module()
    series = series_for(kind)
    inputs = pass_inputs(module, source.family, series.context[:5], series.future[:5])
    with torch.no_grad(), projected(module, bases, widths):
        expected = answer(module, inputs)
    found = answers(tmp_path / "narrow", kind)
    assert distance(found, expected) < 1e-5
    assert distance(found, answers(source, kind)) > 1e-3
    written = open_checkpoint(tmp_path / "narrow")
    assert read_widths(written.config) == widths
    assert report.parameters["after"] == written.parameters == sum(p.numel() for p in written.module().parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_the_refit_of_a_sublayer_solves_its_normal_equations(kind: str, toy: Toy, tmp_path: Path) -> None:
    """D (C + λ) = R with one of the λ, of rows and streams that are read off both models here, every series alike."""
    source, how, bases = toy(kind)
    slicing, widths = Slicing(source), narrow(bases)
    write_sliced(slicing, bases, widths, how, out=tmp_path / "narrow")
    point = next(iter(widths))
    exact, changed = (one.module(torch.float32).eval() for one in (source, open_checkpoint(tmp_path / "narrow")))
    views, series, seen = slicing.views(bases, widths), series_for(kind), {}
    inputs = pass_inputs(exact, source.family, series.context, series.future)
    writer: Any = next(one for name, one in changed.get_submodule(point).named_modules() if name.endswith(".o"))
    before = writer.weight.detach().clone()
    handles = [
        exact.get_submodule(point).register_forward_hook(lambda _, __, out: seen.update(y=out[0])),
        changed.get_submodule(point).skip.register_forward_hook(lambda _, __, out: seen.update(x=out)),
        writer.register_forward_pre_hook(lambda _, args: seen.update(a=args[0])),
        exact.encoder.register_forward_pre_hook(
            lambda _, __, kwargs: seen.update(mask=kwargs.get("attention_mask")), with_kwargs=True
        ),
    ]
    with torch.no_grad():
        exact(**inputs)
        changed(**inputs)
    for handle in handles:
        handle.remove()
    mask = seen["mask"]
    real = torch.ones(seen["a"].shape[:2]) if mask is None or mask.shape != seen["a"].shape[:2] else (mask > 0).float()
    weights = (real / real.sum(dim=1, keepdim=True))[..., None].double()
    rows, missing = seen["a"].double(), seen["y"].double() @ views[point].mT - seen["x"] - writer(seen["a"]).detach()
    second, cross = (torch.einsum("stk,std->kd", left, weights * rows) for left in (rows, missing))
    moved = refine(source, changed, series, targets={point: point}, views=views)
    assert moved
    step = (writer.weight - before).double().detach()
    scale = float(second.diagonal().mean())
    off = [distance(step @ (second + ridge * scale * torch.eye(len(second))), cross) for ridge in RIDGES]
    assert min(off) < 1e-3


def test_answers_come_nearer_with_the_refit(toy: Toy, tmp_path: Path) -> None:
    source, how, bases = toy("chronos-bolt")
    exact, far = answers(source, "chronos-bolt"), {}
    for wanted in (False, None):  # None is the default
        out = tmp_path / str(wanted)
        report = write_sliced(Slicing(source), bases, narrow(bases), replace(how, refine=wanted), out=out)
        assert (report.refined > 0) == (wanted is None)
        far[wanted] = distance(answers(out, "chronos-bolt"), exact)
        assert not (out / ".draft").exists()
    assert far[None] < far[False]


def _turned(slicing: Slicing, bases: dict[str, Basis], widths: dict[str, int]) -> None:
    one = next(iter(bases))
    wrong = torch.linalg.qr(torch.randn(16, 16, generator=torch.Generator().manual_seed(3), dtype=torch.float64)).Q
    bases[one] = replace(bases[one], read=wrong @ bases[one].read)


def _unfolded(slicing: Slicing, bases: dict[str, Basis], widths: dict[str, int]) -> None:
    slicing.__dict__["_gains"] = {point: torch.ones(16, dtype=torch.float64) for point in bases}


def _narrow_norm(slicing: Slicing, bases: dict[str, Basis], widths: dict[str, int]) -> None:
    """As if the mean of squares were taken over the width that is left."""
    slicing.d_model = 6
    widths |= dict.fromkeys(widths, 6)


@pytest.mark.parametrize("broken", [_turned, _unfolded, _narrow_norm])
@pytest.mark.parametrize("kind", ["chronos-t5", "chronos-bolt", "chronos-2"])
def test_a_wrong_rotation_gain_or_norm_is_found_out(broken: Any, kind: str, toy: Toy, tmp_path: Path) -> None:
    source, how, bases = toy(kind)
    slicing, changed, widths = Slicing(source), dict(bases), full(bases)
    broken(slicing, changed, widths)
    write_sliced(slicing, changed, widths, how, out=tmp_path / "wrong")
    module: Any = source.module()
    series = series_for(kind)
    with torch.no_grad(), projected(module, bases, widths):
        expected = answer(module, pass_inputs(module, source.family, series.context[:5], series.future[:5]))
    assert distance(answers(tmp_path / "wrong", kind), expected) > 1e-3


@pytest.mark.parametrize("kind", ["chronos-t5", "chronos-bolt", "chronos-2"])
def test_every_skip_matrix_counts(kind: str, toy: Toy, tmp_path: Path) -> None:
    source, how, bases = toy(kind)
    write_sliced(Slicing(source), bases, full(bases), how, out=tmp_path / "full")
    module: Any = open_checkpoint(tmp_path / "full").module()
    series, exact = series_for(kind), answers(source, kind)
    inputs = pass_inputs(module, source.family, series.context[:5], series.future[:5])
    skips = [layer.skip for layer in module.modules() if hasattr(layer, "skip")]
    assert len(skips) == sum(after is not None for after in points(Slicing(source).shapes).values())
    for skip in skips:
        right = skip.weight.data
        skip.weight.data = torch.eye(len(right))
        with torch.no_grad():
            assert distance(answer(module, inputs), exact) > 1e-4
        skip.weight.data = right


@pytest.mark.parametrize("kind", ["chronos-t5", "chronos-bolt"])
def test_the_fast_runtime_gives_the_same_forecasts(kind: str, toy: Toy, tmp_path: Path) -> None:
    source, how, bases = toy(kind)
    write_sliced(Slicing(source), bases, narrow(bases), how, out=tmp_path / "narrow")
    context = [one[~one.isnan()] for one in series_for(kind).context[:6]]
    if kind == "chronos-bolt":
        stock, fast = (
            load_pipeline(tmp_path / "narrow", runtime=runtime).predict(context, prediction_length=8)
            for runtime in ("stock", "fast")
        )
    else:
        from rankscope.forecast.t5 import T5Network

        module: Any = open_checkpoint(tmp_path / "narrow").module()
        tokens = torch.randint(2, 60, (3, 9), generator=torch.Generator().manual_seed(2))
        kept, network = torch.ones_like(tokens, dtype=torch.bool), T5Network(module)
        with torch.inference_mode():
            stock = module(input_ids=tokens, decoder_input_ids=tokens[:, :1]).logits[:, 0]
            context_values = network.encode_context(tokens, kept)
            past = network.allocate(3, 1)
            for one in past:
                one.begin(1)
            fast = network.step(tokens[:, 0], 0, past, context_values, network.bias(1)[:, -1], None)
    assert distance(fast, stock) < 1e-5


def moments(seed: int, d: int = 7) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    one, two = (torch.randn(d, d, generator=generator, dtype=torch.float64) for _ in range(2))
    return one @ one.mT, two @ two.mT


def lost(second: Tensor, gradients: Tensor, both: Tensor) -> float:
    rest = torch.eye(len(second), dtype=torch.float64) - both
    return float((gradients @ rest @ second @ rest.mT).trace())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("width", [1, 3, 6])
def test_no_projection_of_that_rank_loses_less(seed: int, width: int) -> None:
    """Against alternating least squares from random starts, and against the directions of most energy."""
    second, gradients = moments(seed)
    found = basis(second, gradients, ridge=0.0, gradient_ridge=0.0)
    a, b = found.at(width)
    assert torch.allclose(a.mT @ a, torch.eye(width, dtype=torch.float64), atol=1e-10)
    least = lost(second, gradients, a @ b)
    assert least == pytest.approx(float(found.sigma[width:].square().sum()), rel=1e-8)
    for start in range(3):
        left = torch.randn(7, width, generator=torch.Generator().manual_seed(start), dtype=torch.float64)
        for _ in range(200):
            right = torch.linalg.solve(left.mT @ gradients @ left, left.mT @ gradients)
            left = second @ right.mT @ torch.linalg.inv(right @ second @ right.mT)
        assert lost(second, gradients, left @ right) > least * (1 - 1e-6)
    energy = torch.linalg.eigh(second).eigenvectors[:, -width:]
    assert lost(second, gradients, energy @ energy.mT) > least


def test_a_stream_that_no_answer_reads_is_worth_nothing() -> None:
    second, _ = moments(0)
    assert float(basis(second, torch.zeros(7, 7, dtype=torch.float64)).sigma.max()) < 1e-12
    with pytest.raises(DataError):
        basis(second, torch.full((7, 7), torch.nan, dtype=torch.float64))


@pytest.mark.parametrize("kind", ["chronos-t5", "chronos-bolt"])
def test_gradient_moments_are_those_of_an_inserted_matrix(kind: str, toy: Toy) -> None:
    """Autograd's own gradient by a matrix of every series at one point, squared and added up."""
    source, how, _ = toy(kind)
    point = "encoder.block.1.layer.0"
    tap = StreamTap(point)
    probed(source, how, [tap], silent)
    module: Any = source.module()
    module.requires_grad_(False)
    series = series_for(kind)
    expected, generator = torch.zeros(16, 16, dtype=torch.float64), torch.Generator().manual_seed(how.seed)
    for inputs, count in questions(source, module, series, 16):
        inserted = torch.eye(16).repeat(count, 1, 1).requires_grad_()
        hook = module.get_submodule(point).register_forward_pre_hook(
            lambda _, args, inserted=inserted: (args[0] @ inserted, *args[1:])
        )
        for score in scores(inputs, answer(module, inputs), generator):
            (by,) = torch.autograd.grad(score, inserted, retain_graph=True)
            expected += torch.einsum("nij,nik->jk", by.double(), by.double())
        hook.remove()
    assert tap.second is not None
    assert distance(tap.second, expected) < 1e-4


def test_widths_within_a_budget_are_of_largest_worth() -> None:
    """Among all widths of three points of equal cost none that fits keeps more."""
    bases = {
        name: Basis(torch.tensor(values, dtype=torch.float64).sqrt(), torch.eye(3).double(), torch.eye(3).double())
        for name, values in {"a": [9.0, 4.0, 1.0], "b": [8.0, 0.5, 0.1], "c": [3.0, 2.0, 0.2]}.items()
    }

    def used(widths: Mapping[str, int]) -> float:
        return 10.0 * sum(widths.values())

    def kept(widths: Mapping[str, int]) -> float:
        return sum(float(one.sigma[: widths[name]].square().sum()) for name, one in bases.items())

    for limit in (35.0, 55.0, 74.0, 90.0):
        found = plan_widths(bases, used, limit)
        some = [{"a": a, "b": b, "c": c} for a in (1, 2, 3) for b in (1, 2, 3) for c in (1, 2, 3)]
        assert used(found) <= limit
        assert kept(found) == pytest.approx(max(kept(one) for one in some if used(one) <= limit))
    with pytest.raises(OptionError, match="out of reach: streams of width 1 leave 30"):
        plan_widths(bases, used, 29.0)


@pytest.mark.parametrize("kind", ["chronos-t5", "chronos-bolt", "chronos-2"])
def test_a_ratio_is_a_share_of_all_parameters_and_widths_come_in_multiples(kind: str, toy: Toy, tmp_path: Path) -> None:
    source, how, _ = toy(kind)
    report = compress(source, replace(how, ratio=0.8, multiple=2), out=tmp_path / "out")
    written = open_checkpoint(tmp_path / "out")
    assert written.parameters == report.parameters["after"] <= 0.8 * source.parameters
    assert all(site.rank % 2 == 0 and site.role == "stream" for site in report.sites)
    assert torch.isfinite(answers(written, kind)).all()


@pytest.mark.slow
def test_low_rank_first_then_the_stream_then_int8(toy: Toy, tmp_path: Path) -> None:
    source, how, _ = toy("chronos-bolt")
    series = series_for("chronos-bolt")
    joint: dict[str, Any] = {"method": "joint", "sites": "attention,mlp", "calibration": series, "probe": series}
    compress(source, CompressOptions(attention_ratio=0.6, **joint), out=tmp_path / "joint")
    compress(open_checkpoint(tmp_path / "joint"), replace(how, ratio=0.9), out=tmp_path / "both")
    both = open_checkpoint(tmp_path / "both")
    assert both.layouts.items() <= open_checkpoint(tmp_path / "joint").layouts.items()
    assert any(isinstance(layout, HeadWidth) for layout in both.layouts.values())
    compress(both, CompressOptions(storage="int8"), out=tmp_path / "int8")
    rounded = open_checkpoint(tmp_path / "int8")
    assert rounded.storage == "int8"
    assert read_widths(rounded.config) == read_widths(both.config)
    assert distance(answers(rounded, "chronos-bolt"), answers(both, "chronos-bolt")) < 0.1
    once = compress(open_checkpoint(tmp_path / "joint"), replace(how, ratio=0.9, storage="int8"), out=tmp_path / "once")
    assert once.storage == "int8"
    assert torch.equal(answers(tmp_path / "once", "chronos-bolt"), answers(rounded, "chronos-bolt"))


@pytest.mark.parametrize("kind", ["chronos-bolt", "chronos-2"])
def test_factors_of_every_layer_are_sliced(kind: str, toy: Toy, tmp_path: Path) -> None:
    """Patch embeddings, whose layers have biases, among them."""
    source, how, _ = toy(kind)
    compress(source, CompressOptions(attention_ratio=0.5, sites="all"), out=tmp_path / "svd")
    factored = open_checkpoint(tmp_path / "svd")
    assert "input_patch_embedding.output_layer" in factored.factored
    bases = measure(factored, how, silent)
    write_sliced(Slicing(factored), bases, narrow(bases), how, out=tmp_path / "narrow")
    written, module, series = open_checkpoint(tmp_path / "narrow"), factored.module(), series_for(kind)
    assert written.factored
    with torch.no_grad(), projected(module, bases, narrow(bases)):
        expected = answer(module, pass_inputs(module, factored.family, series.context[:5], series.future[:5]))
    assert distance(answers(written, kind), expected) < 1e-5


def test_factors_wider_than_the_stream_are_multiplied_out(toy: Toy, tmp_path: Path) -> None:
    source, how, _ = toy("chronos-bolt")
    compress(source, CompressOptions(attention_ratio=0.9, sites="attention,mlp"), out=tmp_path / "svd")
    factored = open_checkpoint(tmp_path / "svd")
    bases = measure(factored, how, silent)
    widths = dict.fromkeys(bases, 2)
    write_sliced(Slicing(factored), bases, widths, how, out=tmp_path / "narrow")
    written = open_checkpoint(tmp_path / "narrow")
    assert factored.factored
    assert not written.factored
    module: Any = factored.module()
    series = series_for("chronos-bolt")
    with torch.no_grad(), projected(module, bases, widths):
        expected = answer(module, pass_inputs(module, factored.family, series.context[:5], series.future[:5]))
    assert distance(answers(written, "chronos-bolt"), expected) < 1e-5


@pytest.mark.parametrize(("width", "left"), [(16, True), (2, False)])
def test_sketches_of_single_heads_are_sliced_or_multiplied_out(
    width: int, left: bool, toy: Toy, write_checkpoint: Any, tmp_path: Path
) -> None:
    """A head's sketch of rank 3 fits into a stream of 16, and not into one of 2."""
    source, how, _ = toy("chronos-bolt")
    layouts: dict[str, Layout] = {}
    tensors = {name: source.tensor(name) for name in source.index}
    generator = torch.Generator().manual_seed(0)
    for site in source.sites(["attention"]):
        layout = Factored(3, source.config["num_heads"], 1 if site.role.endswith("o") else 0)
        layouts[site.module] = layout
        whole = tensors.pop(site.name)
        for part, shape in zip(("up", "down"), layout.shapes(*whole.shape), strict=True):
            tensors[f"{site.module}.{part}.weight"] = 0.3 * torch.randn(shape, generator=generator)
    config = low_rank_config(source.config, source.family, layouts, "design")
    designed = open_checkpoint(write_checkpoint(tmp_path / "designed", config, tensors))
    bases = measure(designed, how, silent)
    widths = dict.fromkeys(bases, width)
    write_sliced(Slicing(designed), bases, widths, how, out=tmp_path / "narrow")
    written, module, series = open_checkpoint(tmp_path / "narrow"), designed.module(), series_for("chronos-bolt")
    assert bool(written.factored) is left
    with torch.no_grad(), projected(module, bases, widths):
        expected = answer(module, pass_inputs(module, designed.family, series.context[:5], series.future[:5]))
    assert distance(answers(written, "chronos-bolt"), expected) < 1e-5


def test_bad_requests(toy: Toy, tmp_path: Path) -> None:
    source, how, bases = toy("chronos-bolt")
    out = tmp_path / "out"
    with pytest.raises(OptionError, match="takes a size of the whole model"):
        compress(source, replace(how, ratio=None, eps=0.1), out=out)
    with pytest.raises(OptionError, match="leave out sites and allocation"):
        compress(source, replace(how, sites="mlp"), out=out)
    others = replace(series_for("chronos-bolt"), name="others")
    with pytest.raises(OptionError, match="give the calibration set"):
        compress(source, replace(how, calibration=calibrate(source, others)), out=out)
    with pytest.raises(OptionError, match="out of reach"):
        compress(source, replace(how, ratio=0.01), out=out)
    write_sliced(Slicing(source), bases, narrow(bases), how, out=out)
    with pytest.raises(OptionError, match="sliced already"):
        compress(open_checkpoint(out), how, out=tmp_path / "twice")
    with pytest.raises(OutputError, match="exists"):
        compress(source, how, out=out)


def test_widths_of_a_config_are_checked(toy: Toy) -> None:
    source, _, bases = toy("chronos-bolt")
    for wrong in (0, 17, True, "3"):
        config = {**source.config, "rankscope": {"stream": {"encoder.block.0.layer.0": wrong}}}
        with pytest.raises(CheckpointError, match="whole number from 1 to d_model, 16"):
            read_widths(config)
    with pytest.raises(CheckpointError, match="must name the width of every point"):
        read_widths({**source.config, "rankscope": {"stream": {}}})
    widths = full(bases)
    first = widths.pop("encoder.block.0.layer.0")
    with pytest.raises(CheckpointError, match=r"lacks encoder\.block\.0\.layer\.0"):
        sliced(Slicing(source).shapes, widths)
    with pytest.raises(CheckpointError, match=r"names encoder\.block\.9"):
        sliced(Slicing(source).shapes, {**widths, "encoder.block.0.layer.0": first, "encoder.block.9.layer.0": 3})


def test_the_unit_of_the_loss(toy: Toy) -> None:
    """Cutting the last coordinate of one point costs about what it is said to be worth."""
    source, _, bases = toy("chronos-bolt")
    module: Any = source.module()
    series = series_for("chronos-bolt")
    point = "encoder.final_layer_norm"
    losses, worths = [], []
    for width in (15, 14, 13):
        total, count = 0.0, 0
        with torch.no_grad():
            for inputs, _ in questions(source, module, series, 16):
                assert gives_quantiles(inputs)
                exact = answer(module, inputs)
                with projected(module, bases, {point: width}):
                    found = answer(module, inputs)
                total += float((((found - exact).double() / unit_of(exact)) ** 2).sum())
                count += exact.numel()
        losses.append(total / count)
        worths.append(float(bases[point].sigma[width:].square().sum()))
    for loss, worth in zip(losses, worths, strict=True):
        assert 0.2 < loss / worth < 5
