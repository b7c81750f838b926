"""Joint on Chronos-2: values with outputs everywhere, queries with keys where no rotary position turns them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rankscope import load_pipeline, open_checkpoint
from rankscope.checkpoints import Checkpoint
from rankscope.compress import CompressOptions, Plan, compress
from rankscope.compress.apply import write_folder
from rankscope.compress.calibration import Calibration, calibrate, calibration_set
from rankscope.compress.calibration.passes import pass_inputs
from rankscope.compress.joint import PairCut, inner_qk, inner_vo
from rankscope.compress.methods import MatrixCut
from rankscope.compress.plan import site_plan
from rankscope.compress.prepare import Prepared, prepare, read_matrices
from rankscope.errors import OptionError
from rankscope.families import Factored, HeadWidth
from rankscope.numerics import symmetric_root

TIME, GROUP = ".layer.0.self_attention", ".layer.1.self_attention"


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory, write_checkpoint: Any, tiny_config: Any) -> Checkpoint:
    """A random Chronos-2 whose attention matters: weights ten times the stock start's."""
    return open_checkpoint(write_checkpoint(tmp_path_factory.mktemp("chronos-2") / "m", tiny_config("chronos-2")))


@pytest.fixture(scope="module")
def moments(toy: Checkpoint) -> Calibration:
    return calibrate(toy, calibration_set("kernelsynth:24", context=64, horizon=8))


@pytest.fixture(scope="module")
def prepared(toy: Checkpoint, moments: Calibration) -> Prepared:
    return prepare(toy, CompressOptions(sites="attention", method="joint", allocation="energy", calibration=moments))


def answer(model: Checkpoint | Path) -> Tensor:
    """Quantiles of five series, of which two are alone and three a group."""
    module: Any = (model if isinstance(model, Checkpoint) else open_checkpoint(model)).module()
    context = torch.randn(5, 32, generator=torch.Generator().manual_seed(5)).cumsum(dim=1)
    with torch.no_grad():
        return module(context=context, group_ids=torch.tensor([0, 1, 2, 2, 2]), num_output_patches=2).quantile_preds


def test_what_is_cut_together(toy: Checkpoint, prepared: Prepared) -> None:
    pairs = {(cut.module, cut.pair) for cut in prepared.cuts if isinstance(cut, PairCut)}
    assert pairs == {
        (f"encoder.block.{layer}{part}", pair)
        for layer in range(2)
        for part, pair in ((TIME, "vo"), (GROUP, "qk"), (GROUP, "vo"))
    }
    alone = {cut.module: cut.method for cut in prepared.cuts if isinstance(cut, MatrixCut)}
    assert alone == {f"encoder.block.{layer}{TIME}.{letter}": "whitened" for layer in range(2) for letter in "qk"}


def test_all_terms_reproduce_the_model(
    toy: Checkpoint, prepared: Prepared, tmp_path: Path, write_checkpoint: Any
) -> None:
    tensors = {name: toy.tensor(name) for name in toy.index}
    for cut, spectra in zip(prepared.cuts, prepared.spectra, strict=True):
        plans = [replace(site_plan(one, min(one.rank_now, min(one.shape))), changed=True) for one in spectra]
        for site, matrix in cut.stand_ins(read_matrices(toy, cut), plans).items():
            if isinstance(cut, PairCut):  # heads of other coordinates; a whole W is U Uᵀ W
                assert not torch.allclose(matrix.float(), tensors[site.name], rtol=1e-2)
            tensors[site.name] = matrix.float()
    folder = write_checkpoint(tmp_path / "all", toy.config, tensors)
    exact = answer(toy)
    assert float(exact.std()) > 0.1
    assert float((answer(folder) - exact).abs().max()) < 1e-4


def captured(toy: Checkpoint, modules: list[str]) -> dict[str, Tensor]:
    """Real rows of inputs while the model is run as calibration runs it."""
    module: Any = toy.module()
    given = calibration_set("kernelsynth:24", context=64, horizon=8)
    rows: dict[str, list[Tensor]] = {name: [] for name in modules}
    handles = [
        module.get_submodule(name).register_forward_pre_hook(
            lambda _, args, name=name: rows[name].append(args[0].detach())
        )
        for name in modules
    ]
    with torch.no_grad():
        for i in range(0, 24, 16):
            module(**pass_inputs(module, toy.family, given.context[i : i + 16], given.future[i : i + 16]))
    for handle in handles:
        handle.remove()
    return {name: torch.cat([part.flatten(0, 1) for part in parts]) for name, parts in rows.items()}


def searched(target: Tensor, rank: int) -> float:
    """The least ‖target − X Y‖² that gradient descent finds from two random starts; it has no worse local minima."""
    best = float("inf")
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        shapes = ((target.shape[0], rank), (rank, target.shape[1]))
        x, y = (torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes)
        search = torch.optim.LBFGS([x, y], max_iter=300, line_search_fn="strong_wolfe", tolerance_grad=1e-12)

        def loss(x: Tensor = x, y: Tensor = y, search: Any = search) -> Tensor:
            search.zero_grad()
            value = (target - x @ y).square().sum()
            value.backward()
            return value

        search.step(loss)
        best = min(best, float((target - x @ y).square().sum().detach()))
    return best


@pytest.mark.slow
@pytest.mark.parametrize("part", [TIME, GROUP])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_no_head_of_that_width_writes_nearer_outputs(
    toy: Checkpoint, moments: Calibration, prepared: Prepared, part: str, rank: int
) -> None:
    """Mean squared error over the rows that really entered the output projection, against a search over all maps."""
    module = f"encoder.block.1{part}"
    rows = captured(toy, [f"{module}.o"])[f"{module}.o"][:, 4:].double()  # of the second head
    w_o, w_v = (toy.tensor(f"{module}.{letter}.weight").double() for letter in "ov")
    site = next(site for site in toy.sites() if site.module == f"{module}.o")
    second = moments.of(site).second[4:, 4:]
    torch.testing.assert_close(rows.T @ rows / len(rows), second, rtol=1e-4, atol=1e-6)
    found = inner_vo(w_o[:, 4:], second).between(w_o[:, 4:], w_v[4:])
    small = found.at(rank)
    # what the narrow head writes is up·down z; on a = W_v z that is up·M a with M W_v = down
    inner = torch.linalg.lstsq(w_v[4:].T, small.down.T).solution.T
    torch.testing.assert_close(inner @ w_v[4:], small.down, rtol=1e-6, atol=1e-9)
    error = float(((w_o[:, 4:] - small.up @ inner) @ rows.T).square().sum() / len(rows))
    least = searched(w_o[:, 4:] @ symmetric_root(second)[0], rank)
    assert error == pytest.approx(float(found.sigma[rank:].square().sum()), rel=1e-3)
    assert error <= 1.001 * least
    (spectrum,) = [one for one in prepared.flat if (one.name, one.pair, one.head) == (module, "vo", 1)]
    torch.testing.assert_close(spectrum.values, found.sigma)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_no_head_of_that_width_scores_a_group_nearer(toy: Checkpoint, moments: Calibration, rank: int) -> None:
    module = f"encoder.block.0{GROUP}"
    w_q, w_k = (toy.tensor(f"{module}.{letter}.weight").double()[:4] for letter in "qk")
    sites = {site.module: site for site in toy.sites()}
    c_q, c_k = moments.of(sites[f"{module}.q"]).second, moments.of(sites[f"{module}.k"]).within
    assert float(c_k.diagonal().mean()) > 0.01 * float(c_q.diagonal().mean())  # series of a batch differ
    small = inner_qk(w_q @ c_q @ w_q.T, w_k @ c_k @ w_k.T).between(w_q.T, w_k).at(rank)
    left, right = symmetric_root(c_q)[0], symmetric_root(c_k)[0]
    error = float((left.T @ (w_q.T @ w_k - small.up @ small.down) @ right).square().sum())
    assert error <= 1.001 * searched(left.T @ w_q.T @ w_k @ right, rank)


def test_unlike_widths_answer_as_their_products_do(
    toy: Checkpoint, prepared: Prepared, tmp_path: Path, write_checkpoint: Any
) -> None:
    """The folder against a stock model whose heads are filled up with zeros, and whose factors are multiplied out."""
    sites = tuple(
        site_plan(one, 5 if one.layout == "factored" else 1 + index % 4) for index, one in enumerate(prepared.flat)
    )
    write_folder(prepared, Plan(None, sites, "energy"), tmp_path / "small")
    small = open_checkpoint(tmp_path / "small")
    layouts = small.layouts
    assert {layout.qk for name, layout in layouts.items() if isinstance(layout, HeadWidth) and TIME in name} == {(4, 4)}
    assert any(layout.vo[0] != layout.vo[1] for layout in layouts.values() if isinstance(layout, HeadWidth))
    assert {name[-2:] for name, layout in layouts.items() if isinstance(layout, Factored)} == {".q", ".k"}
    tensors = {name: toy.tensor(name) for name in toy.index}
    for site in small.sites():
        if site.module in small.factored:
            tensors[site.name] = small.matrix(site).dense()  # type: ignore[operator,union-attr]
            continue
        parts = small.tensor(site.name).split(site.head_widths, dim=site.head_axis)
        wide = [torch.zeros(4, 16) if site.head_axis == 0 else torch.zeros(16, 4) for _ in parts]
        for target, part in zip(wide, parts, strict=True):
            target[tuple(slice(size) for size in part.shape)] = part
        tensors[site.name] = torch.cat(wide, dim=site.head_axis)
    dense = write_checkpoint(tmp_path / "dense", toy.config, tensors)
    torch.testing.assert_close(answer(small), answer(dense), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(answer(dense), answer(toy), rtol=1e-2)


PLAIN = """
import sys, torch, rankscope
from chronos import BaseChronosPipeline
pipeline = BaseChronosPipeline.from_pretrained(sys.argv[1], device_map="cpu")
series = [torch.arange(40.0), torch.sin(torch.arange(64.0))]
torch.save(list(pipeline.predict(series, prediction_length=7)), sys.argv[2])
print(type(pipeline).__mro__[1].__module__)
"""


@pytest.mark.slow
def test_a_folder_forecasts_in_plain_chronos_as_it_does_here(toy: Checkpoint, tmp_path: Path) -> None:
    report = compress(
        toy, CompressOptions(attention_ratio=0.6, method="joint", calibration="kernelsynth:24"), out=tmp_path / "small"
    )
    assert {site.layout for site in report.sites} >= {"head-width", "factored"}
    assert len(report.sites) == len(toy.sites())
    small = open_checkpoint(tmp_path / "small")
    assert small.parameters == report.parameters["after"] < toy.parameters
    assert sum(site.parameters_after for site in report.sites) == report.selected_parameters["after"]
    words = [sys.executable, "-c", PLAIN, str(tmp_path / "small"), str(tmp_path / "forecasts.pt")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines()[-1] == "chronos.chronos2.pipeline"
    series = [torch.arange(40.0), torch.sin(torch.arange(64.0))]
    here = load_pipeline(tmp_path / "small").predict(series, prediction_length=7)
    for one, other in zip(here, torch.load(tmp_path / "forecasts.pt"), strict=True):
        assert one.shape == (1, 9, 7)
        assert torch.equal(one, other)


def test_less_and_less(toy: Checkpoint, prepared: Prepared, tmp_path: Path) -> None:
    exact, errors = answer(toy), []
    for rank in (3, 2, 1):
        plan = tuple(site_plan(one, rank if one.layout == "head-width" else 16) for one in prepared.flat)
        write_folder(prepared, Plan(None, plan, "energy"), tmp_path / str(rank))
        errors.append(float((answer(tmp_path / str(rank)) - exact).norm()))
    assert 0 < errors[0] < errors[1] < errors[2]


def test_again_and_in_whole_numbers(toy: Checkpoint, tmp_path: Path) -> None:
    how: dict[str, Any] = {"method": "joint", "calibration": "kernelsynth:24", "allocation": "energy"}
    compress(toy, CompressOptions(attention_ratio=0.9, **how), out=tmp_path / "a")
    again = compress(tmp_path / "a", CompressOptions(attention_ratio=0.8, **how), out=tmp_path / "b")
    assert again.selected_ratio <= 0.8
    compress(tmp_path / "b", CompressOptions(storage="int8"), out=tmp_path / "c")
    exact = answer(tmp_path / "b")
    assert float((answer(tmp_path / "c") - exact).abs().max()) < 0.05 * float(exact.abs().max())
    compress(toy, CompressOptions(attention_ratio=0.5), out=tmp_path / "f")
    with pytest.raises(OptionError, match="two factors"):
        compress(tmp_path / "f", CompressOptions(attention_ratio=0.5, **how), out=tmp_path / "no")
    with pytest.raises(OptionError, match="cuts v and o of a head together"):
        compress(toy, CompressOptions(attention_ratio=0.5, sites="v", **how), out=tmp_path / "no")
    with pytest.raises(OptionError, match="cuts q and k of a head together"):  # of a group's attention
        compress(toy, CompressOptions(attention_ratio=0.5, sites="q", **how), out=tmp_path / "no")


def test_groups_are_of_use_where_series_share_them(toy: Checkpoint, moments: Calibration) -> None:
    """Were every series alone, cutting the queries and keys of a group would change no answer."""
    found = prepare(toy, CompressOptions(sites="attention", method="joint", calibration=moments)).flat
    shared = [one.worth for one in found if one.pair == "qk" and one.name.endswith(GROUP)]
    assert len(shared) == 4
    assert all(worth is not None and float(worth.sum()) > 0 for worth in shared)
    module: Any = toy.module()
    inputs = pass_inputs(module, toy.family, torch.zeros(9, 64), torch.zeros(9, 8))
    assert inputs["group_ids"].tolist() == [0, 1, 2, 3, 4, 4, 4, 4, 8]
