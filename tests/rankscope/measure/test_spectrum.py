"""Spectra of checkpoints written in the published format, against prescribed spectra and slow loops."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rankscope.checkpoints import open_checkpoint
from rankscope.errors import OptionError
from rankscope.families import family_of
from rankscope.io import codec
from rankscope.measure.spectrum import SpectrumReport, measure_spectrum

EPS = (0.5, 0.1, 0.05, 0.01, 0.001)


def prescribed_tensors(
    config: dict[str, Any], tensors: dict[str, Tensor], seed: int
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Replace every attention matrix by UΣVᵀ whose relative values keep 2 % away from every ε; the σ by name."""
    generator = torch.Generator().manual_seed(seed)
    spectra: dict[str, Tensor] = {}
    for site in family_of(config).sites(config):
        if site.kind != "attention":
            continue
        rows, columns = tensors[site.name].shape
        k = min(rows, columns)
        sigma = torch.exp(-9 * torch.rand(k, generator=generator, dtype=torch.float64)).sort(descending=True).values
        sigma[0] = 1.0
        for eps in EPS:
            near = (sigma / eps - 1).abs() < 0.02
            sigma[near] *= 0.95
        sigma = sigma.sort(descending=True).values
        assert all(float((sigma / eps - 1).abs().min()) > 0.01 for eps in EPS)
        spectra[site.name] = sigma * 10 ** float(torch.rand(1, generator=generator) * 4 - 2)
        u = torch.linalg.qr(torch.randn(rows, k, generator=generator, dtype=torch.float64)).Q
        v = torch.linalg.qr(torch.randn(columns, k, generator=generator, dtype=torch.float64)).Q
        tensors = {**tensors, site.name: (u * spectra[site.name]) @ v.T}
    assert spectra
    return tensors, spectra


def count(sigma: Tensor, eps: float) -> int:
    return sum(float(value) > eps * float(sigma.max()) for value in sigma)


def test_prescribed_singular_values_give_exactly_their_ranks_in_float32(
    tmp_path: Path, write_checkpoint: Callable[..., Path], tiny_config: Any, random_tensors: Any
) -> None:
    config = tiny_config("chronos-t5", d_model=96, d_kv=24, num_heads=4)
    tensors, spectra = prescribed_tensors(config, random_tensors(config), 0)
    report = measure_spectrum(open_checkpoint(write_checkpoint(tmp_path / "m", config, tensors)), EPS)
    assert {row.site.name for row in report.sites} == set(spectra)
    for row in report.sites:
        sigma = spectra[row.site.name]
        assert row.eps_ranks == {repr(eps): count(sigma, eps) for eps in EPS}
        assert row.sigma_max == pytest.approx(float(sigma[0]), rel=1e-6)
        np.testing.assert_allclose(row.sigma, sigma, atol=2e-6 * float(sigma[0]))


def test_bfloat16_changes_ranks_only_within_weyls_band(
    tmp_path: Path, write_checkpoint: Callable[..., Path], tiny_config: Any, random_tensors: Any
) -> None:
    """|σ_j(W+E) − σ_j(W)| ≤ ‖E‖₂ (Weyl) with E the rounding to bfloat16, so most coarse ranks cannot change."""
    config = tiny_config("chronos-t5", d_model=96, d_kv=24, num_heads=4)
    tensors, spectra = prescribed_tensors(config, random_tensors(config), 1)
    folder = write_checkpoint(tmp_path / "m", config, tensors, dtype=torch.bfloat16)
    report = measure_spectrum(open_checkpoint(folder), EPS)
    certain = 0
    for row in report.sites:
        sigma, exact = spectra[row.site.name], tensors[row.site.name]
        moved = float(torch.linalg.matrix_norm(exact.bfloat16().double() - exact, ord=2))
        top = float(sigma[0])
        for eps in EPS:
            low = sum(float(s) - moved > eps * (top + moved) for s in sigma)
            high = sum(float(s) + moved > eps * (top - moved) for s in sigma)
            assert low <= row.eps_ranks[repr(eps)] <= high
            assert low <= count(sigma, eps) <= high
            certain += low == high
    assert certain >= len(report.sites)


@pytest.mark.parametrize("kind", ["chronos-t5", "chronos-bolt", "chronos-2", "t5", "t5-gated"])
def test_every_family_against_a_slow_loop_over_matrices_and_heads(
    kind: str, tmp_path: Path, write_checkpoint: Callable[..., Path], tiny_config: Any
) -> None:
    checkpoint = open_checkpoint(write_checkpoint(tmp_path / "m", tiny_config(kind)))
    report = measure_spectrum(checkpoint, [0.3, 0.02], sites="all")
    counted = measure_spectrum(checkpoint, [0.3, 0.02], sites="all", ranks_only=True)
    assert len(report.sites) == len(counted.sites) == len(checkpoint.sites("all"))
    for row, other in zip(report.sites, counted.sites, strict=True):
        w = checkpoint.tensor(row.site.name).double()
        sigma = torch.linalg.svdvals(w)
        np.testing.assert_allclose(row.sigma, sigma, atol=1e-6 * float(sigma[0]))
        assert row.eps_ranks == other.eps_ranks == {"0.3": count(sigma, 0.3), "0.02": count(sigma, 0.02)}
        assert row.per_head_eps_ranks == other.per_head_eps_ranks
        assert row.stable_rank == pytest.approx(float(w.norm() ** 2 / sigma[0] ** 2), rel=1e-5)
        assert other.stable_rank == pytest.approx(row.stable_rank, rel=1e-5)
        assert other.sigma is None
        assert other.effective_rank is None
        if row.site.heads is None:
            assert row.per_head_eps_ranks == {}
            continue
        width = row.site.head_width
        for key, ranks in row.per_head_eps_ranks.items():
            slices = [w.narrow(row.site.head_axis, h * width, width) for h in range(row.site.heads)]
            assert ranks == [count(torch.linalg.svdvals(part), float(key)) for part in slices]


def test_a_factored_checkpoint_measures_like_its_dense_product(
    tmp_path: Path, write_checkpoint: Callable[..., Path], tiny_config: Any, random_tensors: Any
) -> None:
    config = tiny_config("chronos-t5")
    tensors = random_tensors(config)
    sites = [site for site in family_of(config).sites(config) if site.kind == "attention"]
    factored, listed = dict(tensors), {}
    for site in sites:
        rows, columns = tensors.pop(site.name).shape
        up, down = torch.randn(rows, 3), torch.randn(3, columns)
        tensors[site.name] = up @ down
        del factored[site.name]
        factored |= {f"{site.module}.up.weight": up, f"{site.module}.down.weight": down}
        listed[site.module] = {"layout": "factored", "rank": 3}
    block = {"version": 1, "family": "chronos-t5", "method": "svd", "sites": listed}
    compressed = {**config, "model_type": "rankscope-t5", "rankscope": block}
    dense = measure_spectrum(open_checkpoint(write_checkpoint(tmp_path / "dense", config, tensors)), [0.1])
    thin = measure_spectrum(open_checkpoint(write_checkpoint(tmp_path / "thin", compressed, factored)), [0.1])
    for a, b in zip(dense.sites, thin.sites, strict=True):
        assert (a.layout, b.layout, a.shape) == ("dense", "factored", b.shape)
        assert a.eps_ranks == b.eps_ranks
        assert a.per_head_eps_ranks == b.per_head_eps_ranks
        np.testing.assert_allclose(a.sigma[:3], b.sigma, rtol=1e-4)


def small(folder: Path, **options: Any) -> SpectrumReport:
    return measure_spectrum(open_checkpoint(folder), [0.1, 0.01], **options)


def test_json_has_the_documented_shape(chronos_t5_folder: Path) -> None:
    report = small(chronos_t5_folder)
    read = json.loads(codec.text(report.without_sigma()))
    assert {"schema", "model", "eps", "sites"} <= set(read)
    assert read["schema"] == "rankscope/spectrum@1"
    assert read["eps"] == [0.1, 0.01]
    keys = {"name", "stack", "layer", "role", "shape", "sigma_max", "eps_ranks", "per_head_eps_ranks"}
    for site in read["sites"]:
        assert "sigma" not in site
        assert keys | {"effective_rank", "stable_rank"} <= set(site)
        assert set(site["eps_ranks"]) == set(site["per_head_eps_ranks"]) == {"0.1", "0.01"}
    assert codec.plain(codec.parse(SpectrumReport, codec.plain(report))) == codec.plain(report)
    whole = codec.plain(report)["sites"][0]
    assert len(whole["sigma"]) == min(whole["shape"])
    assert whole["sigma"][0] == pytest.approx(whole["sigma_max"])


def test_frame_has_one_row_per_matrix(chronos_t5_folder: Path) -> None:
    report = small(chronos_t5_folder, sites="all")
    frame = report.to_frame()
    assert list(frame["name"]) == [row.site.name for row in report.sites]
    assert list(frame["eps_rank@0.01"]) == [row.eps_ranks["0.01"] for row in report.sites]


def test_size_ratio_counts_factors_only_where_they_are_smaller(
    tmp_path: Path, write_checkpoint: Callable[..., Path], tiny_config: Any, random_tensors: Any
) -> None:
    config = tiny_config("chronos-t5")
    tensors, spectra = prescribed_tensors(config, random_tensors(config), 2)
    report = measure_spectrum(open_checkpoint(write_checkpoint(tmp_path / "m", config, tensors)), EPS)
    for eps in EPS:
        before = after = 0
        for name, sigma in spectra.items():
            rows, columns = tensors[name].shape
            before += rows * columns
            after += min(rows * columns, count(sigma, eps) * (rows + columns))
        assert report.size_ratio[repr(eps)] == pytest.approx(after / before)


def test_workers_and_order_change_nothing(chronos_t5_folder: Path) -> None:
    one, three = (codec.plain(small(chronos_t5_folder, workers=workers)) for workers in (1, 3))
    assert one == three
    threads = torch.get_num_threads()
    small(chronos_t5_folder)
    assert torch.get_num_threads() == threads


def test_progress_counts_every_matrix(chronos_t5_folder: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    report = small(chronos_t5_folder, progress=lambda done, total, what: seen.append((done, total, what)))
    assert [done for done, _, _ in seen] == list(range(len(report.sites) + 1))
    assert {total for _, total, _ in seen} == {len(report.sites)}


def test_zero_matrix_has_rank_zero(
    tmp_path: Path, write_checkpoint: Callable[..., Path], tiny_config: Any, random_tensors: Any
) -> None:
    config = tiny_config("chronos-t5")
    tensors = random_tensors(config)
    name = next(site.name for site in family_of(config).sites(config) if site.role == "self.q")
    tensors[name] = torch.zeros_like(tensors[name])
    report = small(write_checkpoint(tmp_path / "m", config, tensors))
    row = next(row for row in report.sites if row.site.name == name)
    assert row.eps_ranks == {"0.1": 0, "0.01": 0}
    assert row.sigma_max == 0.0
    assert row.stable_rank == 0.0
    assert set(row.per_head_eps_ranks["0.1"]) == {0}


def test_float64_keeps_singular_values_that_a_gram_matrix_would_lose(
    tmp_path: Path, write_checkpoint: Callable[..., Path], tiny_config: Any, random_tensors: Any
) -> None:
    config = tiny_config("chronos-t5")
    tensors, spectra = prescribed_tensors(config, random_tensors(config), 3)
    for name, sigma in spectra.items():
        u, _, v = torch.linalg.svd(tensors[name], full_matrices=False)
        spectra[name] = torch.logspace(0, -12, len(sigma), dtype=torch.float64)
        tensors[name] = (u * spectra[name]) @ v
    folder = write_checkpoint(tmp_path / "m", config, tensors, dtype=torch.float64)
    for row in small(folder, dtype=torch.float64).sites:
        np.testing.assert_allclose(row.sigma, spectra[row.site.name], rtol=1e-2)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"eps": [1.0]}, "eps"),
        ({"eps": []}, "eps"),
        ({"dtype": torch.bfloat16}, "dtype"),
        ({"dtype": "float65"}, "dtype"),
        ({"sites": []}, "sites is empty"),
        ({"workers": 0}, "workers"),
        ({"sites": ("queries",)}, "queries"),
        ({"device": "tpu"}, "device"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], word: str, chronos_t5_folder: Path) -> None:
    with pytest.raises(OptionError, match=word):
        measure_spectrum(open_checkpoint(chronos_t5_folder), **options)


def test_a_dtype_may_be_named(chronos_t5_folder: Path) -> None:
    named, given = (measure_spectrum(chronos_t5_folder, 0.1, dtype=one) for one in ("float64", torch.float64))
    assert named.sites[0].sigma.dtype == np.float64
    assert all(np.array_equal(a.sigma, b.sigma) for a, b in zip(named.sites, given.sites, strict=True))
