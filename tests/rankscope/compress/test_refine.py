"""Anchored refinement: the update against brute force, side by side against one by one, and what compress writes."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rankscope import open_checkpoint
from rankscope.checkpoints import Checkpoint
from rankscope.compress import CompressOptions, compress
from rankscope.compress.calibration import CalibrationSet, calibrate, calibration_set, named_set
from rankscope.compress.calibration.passes import answer, by_length, pass_inputs
from rankscope.compress.pausing import THREAD, PausingPass
from rankscope.compress.refine import BATCH, FOLDS, PASSES, RIDGES, SKETCH, Sums, _solved, affordable, refine, update
from rankscope.errors import OptionError
from rankscope.families.stream import points

KINDS = ("chronos-t5", "t5-gated", "chronos-bolt", "chronos-2")
Made = Callable[[str], Checkpoint]


def folds(rows: Tensor, missing: Tensor, number: int = FOLDS) -> list[Sums]:
    return [Sums.of(rows[at::number], missing[at::number]) for at in range(number)]


def ridge_fit(rows: Tensor, missing: Tensor, weight: float) -> Tensor:
    """Least squares with √λ times the identity below the rows."""
    more = weight**0.5 * torch.eye(rows.shape[1], dtype=torch.float64)
    none = torch.zeros(len(more), missing.shape[1], dtype=torch.float64)
    return torch.linalg.lstsq(torch.cat([rows, more]), torch.cat([missing, none])).solution.mT


def data(noise: float, n: int = 60, outputs: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(n, 9, generator=generator, dtype=torch.float64)
    true = torch.randn(9, outputs, generator=generator, dtype=torch.float64)
    return rows, rows @ true + noise * torch.randn(n, outputs, generator=generator, dtype=torch.float64)


def test_without_a_ridge_it_is_least_squares() -> None:
    rows, missing = data(noise=0.1)
    found = update(folds(rows, missing), ridges=(1e-13,))
    assert found is not None
    torch.testing.assert_close(found, torch.linalg.lstsq(rows, missing).solution.mT, rtol=1e-8, atol=1e-8)


def searched(rows: Tensor, missing: Tensor) -> tuple[float, list[float]]:
    """Mean diagonal element of C, and the held-out error of every λ by a search over rows."""
    scale, errors = float((rows.mT @ rows).diagonal().mean()), []
    for ridge in RIDGES:
        error = 0.0
        for at in range(FOLDS):
            held = torch.arange(len(rows)) % FOLDS == at
            fit = ridge_fit(rows[~held], missing[~held], ridge * scale * (1 - 1 / FOLDS))
            error += float((missing[held] - rows[held] @ fit.mT).square().sum())
        errors.append(error)
    return scale, errors


@pytest.mark.parametrize("noise", [0.01, 3.0, 20.0])
def test_the_ridge_is_that_of_a_search_over_rows(noise: float) -> None:
    rows, missing = data(noise)
    scale, errors = searched(rows, missing)
    best = min(range(len(RIDGES)), key=errors.__getitem__)
    found = update(folds(rows, missing))
    assert (found is None) == (errors[best] >= float(missing.square().sum()))
    if found is not None:
        torch.testing.assert_close(found, ridge_fit(rows, missing, RIDGES[best] * scale), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("noise", [0.01, 3.0, 20.0])
def test_a_sketch_of_many_outputs_chooses_as_well(noise: float) -> None:
    rows, missing = data(noise, outputs=3 * SKETCH)
    scale, errors = searched(rows, missing)
    found = update(folds(rows, missing))
    assert found is not None
    (taken,) = (
        at for at, one in enumerate(RIDGES) if torch.allclose(found, ridge_fit(rows, missing, one * scale), rtol=1e-6)
    )
    assert errors[taken] < min(errors) + 1e-3 * float(missing.square().sum())


def test_sums_are_solved_on_the_device_that_they_are_on() -> None:
    """The device that every machine has beside its processor has no values: reading one is where it ends."""
    sums = Sums(torch.empty(4, 4, device="meta"), torch.empty(3, 4, device="meta"))
    with pytest.raises(RuntimeError, match=r"\.item\(\) cannot be called on meta tensors"):
        _solved(sums, 0.1)


def test_folds_that_contradict_each_other_change_nothing() -> None:
    rows, missing = data(noise=0.1)
    assert update([Sums.of(rows, missing), Sums.of(rows, -missing)]) is None


@pytest.fixture(scope="module")
def made(
    tmp_path_factory: pytest.TempPathFactory, write_checkpoint: Any, tiny_config: Any, random_tensors: Any
) -> Made:
    found: dict[str, Checkpoint] = {}

    def get(kind: str) -> Checkpoint:
        if kind not in found:
            config = tiny_config(kind)
            folder = write_checkpoint(tmp_path_factory.mktemp(kind) / "m", config, random_tensors(config))
            found[kind] = open_checkpoint(folder)
        return found[kind]

    return get


def series_for(kind: str, number: int = 40) -> CalibrationSet:
    if kind.startswith("t5"):
        tokens = torch.randint(2, 60, (number, 28), generator=torch.Generator().manual_seed(1)).float()
        return CalibrationSet("texts", tokens[:, :20], tokens[:, 20:])
    found = calibration_set(f"mixture:{number}", context=48, horizon=8)
    context = found.context.clone()
    context[::3, :20] = torch.nan  # padding, which must not count
    return CalibrationSet(found.name, context, found.future)


def damaged(source: Checkpoint, noise: float = 0.3) -> torch.nn.Module:
    """The model with noise on everything that a sublayer holds."""
    module = source.module(torch.float32)
    generator = torch.Generator().manual_seed(5)
    for name, weight in module.named_parameters():
        if ".layer." in name and weight.ndim == 2:
            weight.data += noise * weight.data.std() * torch.randn(weight.shape, generator=generator)
    return module.eval()


def writers(module: torch.nn.Module, places: list[str]) -> dict[str, str]:
    names = [name for name, _ in module.named_modules()]
    ends = ("SelfAttention.o", "EncDecAttention.o", "self_attention.o", "DenseReluDense.wo", "mlp.wo")
    return {one: next(name for name in names if name.startswith(f"{one}.") and name.endswith(ends)) for one in places}


def naively(source: Checkpoint, changed: torch.nn.Module, series: CalibrationSet) -> dict[str, Tensor]:
    """Refit one sublayer after the other, each by passes over everything from the start."""
    shapes = {name: info.shape for name, info in source.index.items()}
    places = [one for one, after in points(shapes).items() if after is not None]
    original = source.module(torch.float32).eval()
    size, order, found = max(1, min(BATCH, len(series) // FOLDS)), by_length(series.context), {}
    for place, name in writers(changed, places).items():
        writer: Any = changed.get_submodule(name)
        folded: dict[int, Sums] = {}
        for at, start in enumerate(range(0, len(series), size)):
            part = order[start : start + size]
            inputs = pass_inputs(original, source.family, series.context[part], series.future[part])
            seen: dict[str, Any] = {}

            def keep(key: str, what: Any, seen: dict[str, Any] = seen) -> Any:
                return lambda _, *given: seen.update({key: what(*given)})

            stack = place.partition(".")[0]
            first = keep("x", lambda args, kwargs: args[0] if args else kwargs["hidden_states"])
            handles = [
                original.get_submodule(place).register_forward_hook(
                    keep("y", lambda _, out: out if isinstance(out, Tensor) else out[0])
                ),
                changed.get_submodule(place).register_forward_pre_hook(first, with_kwargs=True),
                writer.register_forward_pre_hook(keep("a", lambda args: args[0])),
                changed.get_submodule(stack).register_forward_pre_hook(
                    keep("mask", lambda _, kwargs: kwargs.get("attention_mask")), with_kwargs=True
                ),
            ]
            with torch.no_grad():
                original(**inputs)
                changed(**inputs)
            for handle in handles:
                handle.remove()
            rows = seen["a"].transpose(0, 1) if ".layer.1.self_attention." in name else seen["a"]
            missing = seen["y"] - seen["x"] - writer(rows).detach()
            mask = seen["mask"]
            real = mask > 0 if mask is not None and mask.shape == rows.shape[:2] else torch.ones(rows.shape[:2]) > 0
            weight = (1 / real.sum(dim=1, keepdim=True)).expand(real.shape)[real].sqrt()[:, None]  # of a series: 1
            one = Sums.of(weight * rows[real], weight * missing[real])
            folded[at % FOLDS] = folded[at % FOLDS] + one if at >= FOLDS else one
        moved = update([*folded.values()])
        if moved is not None:
            writer.weight.data += moved.to(writer.weight)
            found[f"{name}.weight"] = writer.weight.detach()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_side_by_side_is_one_sublayer_after_the_other(kind: str, made: Made) -> None:
    source, series = made(kind), series_for(kind)
    smaller = damaged(source)
    found, expected = refine(source, copy.deepcopy(smaller), series), naively(source, smaller, series)
    assert found.keys() == expected.keys() != set()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=1e-4 * float(tensor.abs().max()))


@pytest.mark.parametrize("kind", KINDS)
def test_the_answers_come_nearer_on_other_series(kind: str, made: Made) -> None:
    source = made(kind)
    module: Any = damaged(source)
    exact: Any = source.module(torch.float32).eval()
    series = series_for(kind, 64)
    inputs = pass_inputs(exact, source.family, series.context[40:], series.future[40:])
    with torch.no_grad():
        wanted, before = answer(exact, inputs), answer(module, inputs)
        refine(source, module, CalibrationSet("shown", series.context[:40], series.future[:40]))
        after = answer(module, inputs)
    assert float((after - wanted).norm()) < 0.8 * float((before - wanted).norm())


def test_an_equal_model_stays_as_it_is_and_no_pass_is_left(made: Made) -> None:
    source = made("chronos-bolt")
    for name, tensor in refine(source, source.module(), series_for("chronos-bolt", 8)).items():
        torch.testing.assert_close(tensor, source.tensor(name), rtol=1e-5, atol=1e-5)
    assert THREAD not in {thread.name for thread in threading.enumerate()}


def test_an_error_of_a_pass_is_raised_and_no_pass_is_left(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    source = made("chronos-bolt")
    module = source.module(torch.float32)

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(module.get_submodule("encoder.block.1.layer.1.DenseReluDense.wi"), "forward", fail)
    with pytest.raises(RuntimeError, match="out of order"):
        refine(source, module, series_for("chronos-bolt", 8))
    assert THREAD not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("broken", ["a pass", "a hook"])
def test_an_error_before_the_first_sublayer_leaves_neither_passes_nor_hooks(
    broken: str, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = made("chronos-bolt")
    module, calls = source.module(torch.float32), 0
    home, name = (PausingPass, "start") if broken == "a pass" else (torch.nn.Module, "register_forward_pre_hook")
    whole = getattr(home, name)

    def failing(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise RuntimeError("no more of them")
        return whole(*args, **options)

    def hooks() -> int:
        return sum(len(one._forward_hooks) + len(one._forward_pre_hooks) for one in module.modules())

    before = hooks()
    monkeypatch.setattr(home, name, failing)
    with pytest.raises(RuntimeError, match="no more of them"):
        refine(source, module, series_for("chronos-bolt", 8))
    assert hooks() == before
    assert THREAD not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("kind", ["chronos-t5", "chronos-bolt", "chronos-2"])
@pytest.mark.parametrize("method", ["joint", pytest.param("svd", marks=pytest.mark.slow)])
def test_a_refined_folder_is_nearer_to_the_original(kind: str, method: Any, made: Made, tmp_path: Path) -> None:
    source, series = made(kind), series_for(kind, 32)
    inputs = pass_inputs(source.module(), source.family, series.context, series.future)
    wanted = answer(source.module(), inputs)
    far = {}
    for refined in (False, True):
        probe = None if method == "svd" else series
        how = CompressOptions(ratio=0.7, method=method, calibration=series, probe=probe, refine=refined)
        report = compress(source, how, out=tmp_path / str(refined))
        folder = open_checkpoint(tmp_path / str(refined))
        assert (report.refined > 0) == refined
        assert not (folder.folder / ".draft").exists()
        assert folder.parameters == report.parameters["after"]
        with torch.no_grad():
            far[refined] = float((answer(folder.module(), inputs) - wanted).norm())
    assert far[True] < far[False]


@pytest.mark.slow
def test_int8_rounds_what_was_refined(made: Made, tmp_path: Path) -> None:
    source, series = made("chronos-bolt"), series_for("chronos-bolt", 32)
    modules: list[Any] = []
    for storage in ("float", "int8"):
        how = CompressOptions(ratio=0.7, calibration=series, probe=series, storage=storage)  # type: ignore[arg-type]
        assert compress(source, how, out=tmp_path / storage).refined > 0
        modules.append(open_checkpoint(tmp_path / storage).module())
    inputs = pass_inputs(modules[0], source.family, series.context, series.future)
    with torch.no_grad():
        exact, rounded = (answer(module, inputs) for module in modules)
    assert 0 < float((exact - rounded).norm()) < 0.02 * float(exact.norm())


@pytest.mark.slow
def test_moments_are_refined_with_the_series_that_they_name(made: Made, tmp_path: Path) -> None:
    source = made("chronos-bolt")
    plain = CompressOptions(attention_ratio=0.5, method="joint", calibration="mixture:16", probe="mixture:4")
    moments = replace(plain, calibration=calibrate(source, named_set(source, "mixture:16")))
    reports = [compress(source, how, out=tmp_path / str(at)) for at, how in enumerate((plain, moments))]
    assert reports[0].refined == reports[1].refined > 0
    files = [(tmp_path / str(at) / "model.safetensors").read_bytes() for at in range(2)]
    assert files[0] == files[1]


def test_without_their_series_they_are_not(made: Made, tmp_path: Path) -> None:
    source, series = made("chronos-bolt"), series_for("chronos-bolt", 16)
    how = CompressOptions(attention_ratio=0.5, method="joint", calibration=calibrate(source, series), probe=series)
    report = compress(source, how, out=tmp_path / "plain")
    assert report.refined == 0
    assert "refinement was skipped" in report.notes[-1]
    with pytest.raises(OptionError, match="cannot be regenerated"):
        compress(source, replace(how, refine=True), out=tmp_path / "refined")
    assert not (tmp_path / "refined").exists()


def test_one_series_is_too_few(made: Made, tmp_path: Path) -> None:
    source = made("chronos-bolt")
    how = CompressOptions(ratio=0.8, method="joint", calibration=series_for("chronos-bolt", 1), probe="mixture:8")
    with pytest.raises(OptionError, match=r"2 at least, and .* holds 1: write FILE:64 for 64 windows of a file"):
        compress(source, replace(how, refine=True), out=tmp_path / "asked")
    report = compress(source, how, out=tmp_path / "small")
    assert report.refined == 0
    assert any("refinement was skipped" in note for note in report.notes)


def test_threads_of_passes_do_not_grow_with_the_series(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    source, most = made("chronos-bolt"), 0

    class Counted(PausingPass):
        def start(self) -> None:
            nonlocal most
            super().start()
            most = max(most, sum(one.name == THREAD for one in threading.enumerate()))

    monkeypatch.setattr("rankscope.compress.refine.PausingPass", Counted)
    refine(source, damaged(source), series_for("chronos-bolt", 40 * PASSES))
    assert most == 2 * PASSES


def test_of_a_wide_model_some_series_of_every_part_are_refitted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_checkpoint("bundled-bolt")
    values = torch.arange(100.0)[:, None]
    series = CalibrationSet("two parts", values.expand(-1, 64).clone(), values.expand(-1, 8).clone())
    assert len(affordable(source, series)) == 100
    monkeypatch.setattr("rankscope.compress.refine.HELD", 1)
    some = affordable(source, series)
    assert len(some) == BATCH
    assert torch.equal(some.context[:, 0], some.future[:, 0])
    assert [float(some.context[0, 0]), float(some.context[-1, 0])] == [0, 99]
    assert some.context[:, 0].diff().aminmax() == (6, 7)
