"""Reports of whole heads, and the notes on positions that calibration did not show."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rankscope import load_pipeline, open_checkpoint
from rankscope.checkpoints import Checkpoint
from rankscope.compress import CompressOptions, CompressReport, compress
from rankscope.compress.calibration import Calibration, calibrate, calibration_set
from rankscope.io import codec
from rankscope.numerics import FactoredMatrix

Toys = Callable[[str], tuple[Checkpoint, Calibration]]


SITE_KEYS = {"name", "stack", "layer", "role", "shape", "layout", "rank", "widths", "eps_rank", "parameters_before"}
SITE_KEYS |= {"parameters_after", "spectral_error", "relative_error", "lost", "note", "removed"}
KEYS = {
    "schema",
    "model",
    "family",
    "out",
    "method",
    "allocation",
    "calibration",
    "eps",
    "asked",
    "ratio",
    "selected_ratio",
}
KEYS |= {"parameters", "selected_parameters", "bytes", "dtype", "seconds", "notes", "sites"}


def check_shape(report: CompressReport, folder: Path) -> dict[str, Any]:
    shape = codec.plain(report)
    assert shape == json.loads((folder / "compress.json").read_text())
    assert shape.keys() >= KEYS
    assert shape["schema"] == "rankscope/compress@2"
    for site in shape["sites"]:
        assert site.keys() == SITE_KEYS
    return shape


def test_the_report_says_what_was_done_to_heads(toys: Toys, tmp_path: Path) -> None:
    source, moments = toys("chronos-t5")
    report = compress(
        source, CompressOptions(attention_ratio=0.6, method="joint", calibration=moments), out=tmp_path / "small"
    )
    shape = check_shape(report, tmp_path / "small")
    assert (shape["method"], shape["allocation"], shape["calibration"]) == ("joint", "sensitivity", "kernelsynth:24")
    assert (shape["eps"], shape["asked"]) == (None, {"attention-ratio": 0.6})
    small = open_checkpoint(tmp_path / "small")
    for site in report.sites:
        stored = small.tensor(site.name)
        assert site.rank == sum(site.widths) == stored.shape[0 if site.role[-1] != "o" else 1]
        assert site.parameters_after == stored.numel()
        assert 0 <= site.lost < 1
    assert sum(site.parameters_after for site in report.sites) == report.selected_parameters["after"]
    pairs = {site.name.rpartition(".q.")[0]: site.widths for site in report.sites if site.role.endswith(".q")}
    keys = {site.name.rpartition(".k.")[0]: site.widths for site in report.sites if site.role.endswith(".k")}
    assert pairs == keys


def test_too_few_positions_are_regularised_and_said(toys: Toys, tmp_path: Path) -> None:
    """One series gives Bolt's decoder one position: it cannot decide ranks of four."""
    source, enough = toys("chronos-bolt")
    few = calibrate(source, calibration_set("kernelsynth:1", context=32, horizon=8))
    for method in ("whitened", "joint"):
        report = compress(
            source, CompressOptions(attention_ratio=0.9, method=method, calibration=few), out=tmp_path / method
        )
        first, *more = report.notes
        assert "fewer positions than they have ranks" in first
        assert "\n" not in first
        assert [note.rpartition("; ")[2] for note in more] == ["refinement was skipped."] * (method == "joint")
        assert check_shape(report, tmp_path / method)["notes"] == [*report.notes]
        assert bool(torch.isfinite(load_pipeline(tmp_path / method).predict(torch.arange(32.0))).all())
        plenty = compress(
            source,
            CompressOptions(attention_ratio=0.9, method=method, calibration=enough),
            out=tmp_path / f"{method}-plenty",
        )
        assert plenty.notes == ()


def test_whitened_falls_back_on_plain_svd_where_nothing_was_shown(toys: Toys, tmp_path: Path) -> None:
    """Beyond what one position decides, the order of the terms is that of the singular values."""
    source, _ = toys("chronos-bolt")
    few = calibrate(source, calibration_set("kernelsynth:1", context=32, horizon=8))
    site = next(site for site in source.sites() if site.stack == "decoder" and site.role == "self.o")
    assert few.of(site).tokens == 1
    compress(
        source,
        CompressOptions(
            attention_ratio=0.7, method="whitened", calibration=few, sites="o,decoder,self", allocation="uniform-ratio"
        ),
        out=tmp_path / "small",
    )
    found = open_checkpoint(tmp_path / "small").matrix(site)
    assert isinstance(found, FactoredMatrix)
    weight = source.tensor(site.name).double()
    x = few.of(site).total[:, None]
    u = (weight @ x) / (weight @ x).norm()
    left, s, right = torch.linalg.svd(weight - u @ (u.T @ weight), full_matrices=False)
    best = u @ (u.T @ weight) + left[:, : found.rank - 1] * s[: found.rank - 1] @ right[: found.rank - 1]
    assert float((found.dense() - best).norm()) < 0.01 * float((weight - best).norm())
    assert float((found.dense().double() @ x - weight @ x).norm()) < 1e-3 * float((weight @ x).norm())
