"""Whole calibrations against all rows captured at once, and the report of what they showed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from rankscope import open_checkpoint
from rankscope.checkpoints import Checkpoint
from rankscope.compress import CompressOptions, compress
from rankscope.compress.calibration import CalibrationSet, calibrate, calibration_set, load_calibration, report_on
from rankscope.compress.calibration.passes import MEMORY, pass_inputs, stream_of
from rankscope.compress.calibration.statistics import series_for
from rankscope.errors import DataError, FamilyError, OptionError
from rankscope.io import codec

KINDS = ("chronos-t5", "chronos-bolt", "chronos-2", "t5")
HORIZON = 6


def series(n: int = 5, seed: int = 0) -> CalibrationSet:
    """Walks, some of them short, one with holes; 24 values are six patches."""
    generator = torch.Generator().manual_seed(seed)
    walk = torch.randn(n, 24 + HORIZON, generator=generator).cumsum(dim=1)
    context, future = walk[:, :24].clone(), walk[:, 24:].clone()
    context[0, :13] = torch.nan
    context[-1, 9:11] = torch.nan
    future[0, 2] = torch.nan
    return CalibrationSet("walks", context, future)


def texts(n: int = 5) -> CalibrationSet:
    tokens = torch.randint(2, 60, (n, 24 + HORIZON), generator=torch.Generator().manual_seed(1)).float()
    tokens[0, 15:24] = 0
    tokens[1, -2:] = 0
    return CalibrationSet("texts", tokens[:, :24], tokens[:, 24:])


def of_kind(kind: str, n: int = 5) -> CalibrationSet:
    return texts(n) if kind == "t5" else series(n)


def everything(checkpoint: Checkpoint) -> tuple[Any, ...]:
    return tuple(site for site in checkpoint.sites(["all"]) if site.role != "embedding")


def captured(checkpoint: Checkpoint, given: CalibrationSet) -> dict[str, list[Tensor]]:
    """Every input of every site, from one pass over the whole set, by hooks of the test's own."""
    module = checkpoint.module()
    rows: dict[str, list[Tensor]] = {}
    handles = []
    for site in everything(checkpoint):
        handles.append(
            module.get_submodule(site.module).register_forward_pre_hook(
                lambda _, args, name=site.name: rows.setdefault(name, []).append(args[0].detach().double())
            )
        )
    with torch.no_grad():
        module(**pass_inputs(module, checkpoint.family, given.context, given.future))
    for handle in handles:
        handle.remove()
    return rows


def real_positions(kind: str, given: CalibrationSet) -> dict[str, list[Tensor]]:
    """Which positions are real, said by hand: by place, one mask for each call."""
    n = len(given)
    ones = torch.ones(n, 1, dtype=torch.bool)
    if kind in ("chronos-t5", "t5"):
        observed, follows = (given.context != 0, given.future != 0)
        if kind == "chronos-t5":
            observed = torch.cat([~given.context.isnan(), ones], dim=1)  # the end token
            follows = ~given.future.isnan()
        decoder = torch.cat([ones, follows[:, :-1]], dim=1)
        return {"encoder": [observed], "decoder": [decoder]}
    patches = (~given.context.isnan()).unflatten(1, (-1, 4)).any(dim=-1)
    if kind == "chronos-bolt":
        return {"patches": [patches], "encoder": [torch.cat([patches, ones], dim=1)], "decoder": [ones], "head": [ones]}
    ahead = torch.ones(n, 2, dtype=torch.bool)  # 6 values in patches of 4
    whole = torch.cat([patches, ones, ahead], dim=1)
    return {"patches": [patches, ahead], "encoder": [whole], "group": [whole.T], "head": [ahead]}


def place_of(site: Any) -> str:
    if site.role.startswith("patch"):
        return "patches"
    if site.kind == "head":
        return "head"
    if site.role.startswith("group"):
        return "group"
    return "encoder" if site.role in ("cross.k", "cross.v") else site.stack


def weights_of(mask: Tensor, place: str) -> Tensor:
    """Of positions: 1 for every series, shared by its own; group attentions read series by series at each position."""
    each = mask.sum(dim=0 if place == "group" else 1, keepdim=True)
    return mask / each


@pytest.mark.parametrize("kind", KINDS)
def test_moments_equal_those_of_all_rows_at_once_every_series_alike(kind: str, make: Callable[..., Checkpoint]) -> None:
    checkpoint, given = make(kind), of_kind(kind)
    found = calibrate(checkpoint, given, sites=everything(checkpoint), batch_size=len(given))
    rows, real = captured(checkpoint, given), real_positions(kind, given)
    assert any(not mask.all() for masks in real.values() for mask in masks)
    for site in everything(checkpoint):
        kept = [
            (row[keep], weight[keep][:, None])
            for x, mask in zip(rows[site.name], real[place_of(site)], strict=True)
            for row, keep, weight in zip(x, mask, weights_of(mask, place_of(site)), strict=True)
            if keep.any()
        ]
        dense, weight = (torch.cat(part) for part in zip(*kept, strict=True))
        moments = found.of(site)
        assert moments.tokens == len(dense), site.name
        assert moments.sequences == len(kept), site.name
        assert moments.weight == pytest.approx(len(given) * len(real[place_of(site)])), site.name
        scale = float(dense.square().mean())
        second, absolute = dense.T @ (weight * dense), (weight * dense.abs()).sum(dim=0)
        centred = torch.cat([row - (w * row).sum(dim=0) / w.sum() for row, w in kept])
        within = centred.T @ (weight * centred)
        torch.testing.assert_close(moments.second, second / weight.sum(), rtol=1e-4, atol=1e-5 * scale)
        torch.testing.assert_close(moments.within, within / weight.sum(), rtol=1e-4, atol=1e-5 * scale)
        torch.testing.assert_close(moments.absolute, absolute / weight.sum(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["chronos-t5", "chronos-bolt", "t5"])
def test_batches_add_up_to_one_pass(kind: str, make: Callable[..., Checkpoint]) -> None:
    """Padding of one batch must not be taken for that of the next. Chronos-2's groups do depend on the batch."""
    checkpoint, given = make(kind), of_kind(kind)
    whole, parts = (
        calibrate(checkpoint, given, sites=everything(checkpoint), batch_size=size) for size in (len(given), 2)
    )
    assert whole.streams.keys() == parts.streams.keys()
    for stream, moments in whole.streams.items():
        assert moments.tokens == parts.streams[stream].tokens, stream
        assert moments.sequences == parts.streams[stream].sequences, stream
        torch.testing.assert_close(parts.streams[stream].second, moments.second, rtol=1e-4, atol=1e-5)


def test_a_bolt_without_register_token(make: Callable[..., Checkpoint], tiny_config: Any) -> None:
    inner = {**tiny_config("chronos-bolt")["chronos_config"], "use_reg_token": False}
    checkpoint = make("chronos-bolt", chronos_config=inner, vocab_size=1)
    given = series()
    found = calibrate(checkpoint, given, sites=everything(checkpoint), batch_size=2)
    observed = int((~given.context.isnan()).unflatten(1, (-1, 4)).any(dim=-1).sum())
    for site in everything(checkpoint):
        expected = len(given) if place_of(site) in ("decoder", "head") else observed
        assert found.of(site).tokens == expected, site.name


def test_a_square_batch_of_groups_heeds_the_turned_mask(make: Callable[..., Checkpoint]) -> None:
    """Nine series of nine positions: the mask fits both ways round, only one is right."""
    checkpoint, given = make("chronos-2"), series(9)
    site = next(site for site in checkpoint.sites() if site.role == "group.q")
    rows, (mask,) = captured(checkpoint, given)[site.name][0], real_positions("chronos-2", given)["group"]
    assert mask.shape[0] == mask.shape[1]
    kept, weight = rows[mask], weights_of(mask, "group")[mask][:, None]
    found = calibrate(checkpoint, given, batch_size=9).of(site)
    torch.testing.assert_close(found.second, kept.T @ (weight * kept) / len(given), rtol=1e-4, atol=1e-5)


def test_one_token_in_the_decoder_of_bolt_has_nothing_within(make: Callable[..., Checkpoint]) -> None:
    checkpoint = make("chronos-bolt")
    found = calibrate(checkpoint, series(), batch_size=2)
    site = next(site for site in checkpoint.sites() if site.stack == "decoder" and site.role == "self.k")
    assert found.of(site).tokens == 5
    assert not found.of(site).within.any()


def test_memory_is_shared_by_every_cross_attention(make: Callable[..., Checkpoint]) -> None:
    checkpoint = make("chronos-t5")
    found = calibrate(checkpoint, series(), batch_size=5)
    cross = [site for site in checkpoint.sites() if site.role in ("cross.k", "cross.v")]
    assert {stream_of(site) for site in cross} == {MEMORY}
    assert found.of(cross[0]) is found.of(cross[-1])
    assert len(found.streams) == 2 * 2 + 2 * 4 + 1  # q and o of every attention, and the memory


def test_sampled_paths_are_counted_once_and_seeded(make: Callable[..., Checkpoint]) -> None:
    """What the layers see while paths are drawn, token by token, must not be added to what the pass shows them."""
    checkpoint, given = make("chronos-t5"), series()
    teacher, first, again, other = (
        calibrate(checkpoint, given, decoder=decoder, seed=seed, batch_size=2)
        for decoder, seed in (("teacher", 0), ("sampled", 0), ("sampled", 0), ("sampled", 99))
    )
    name = next(stream for stream in first.streams if stream.startswith("decoder.block.1") and stream.endswith(".q"))
    for stream, moments in first.streams.items():
        decodes = stream.startswith("decoder.")
        assert moments.sequences == len(given)
        assert moments.tokens == (len(given) * HORIZON if decodes else teacher.streams[stream].tokens)
        assert torch.equal(moments.outer, again.streams[stream].outer)
        if not decodes:
            assert torch.equal(moments.outer, teacher.streams[stream].outer)
    assert not torch.allclose(first.streams[name].outer, other.streams[name].outer)
    assert not torch.allclose(first.streams[name].outer, teacher.streams[name].outer)


def test_models_without_paths(make: Callable[..., Checkpoint]) -> None:
    bolt, given = make("chronos-bolt"), series()
    teacher, sampled = (calibrate(bolt, given, decoder=decoder) for decoder in ("teacher", "sampled"))
    assert all(torch.equal(m.outer, sampled.streams[stream].outer) for stream, m in teacher.streams.items())
    with pytest.raises(FamilyError, match="draws no sample paths"):
        calibrate(make("t5"), texts(), decoder="sampled")


@pytest.mark.parametrize("context", [torch.zeros(0, 24), torch.full((2, 24), torch.nan)])
def test_nothing_to_calibrate_on(context: torch.Tensor) -> None:
    with pytest.raises(DataError, match=r"^calibration set 'none' holds no series with an observation: name at least"):
        CalibrationSet("none", context, torch.zeros(len(context), HORIZON))


@pytest.mark.parametrize("method", ["whitened", "joint", "depth"])
def test_series_without_an_observation_are_left_out(
    method: str, make: Callable[..., Checkpoint], tmp_path: Path
) -> None:
    checkpoint, given = make("chronos-t5"), series()
    blank = torch.full_like(given.context[:1], torch.nan)
    more = CalibrationSet(
        given.name, torch.cat([blank, given.context]), torch.cat([torch.zeros_like(given.future[:1]), given.future])
    )
    assert len(more) == len(given)
    torch.testing.assert_close(more.future, given.future, rtol=0, atol=0, equal_nan=True)
    for name, one in (("plain", given), ("more", more)):
        how = CompressOptions(
            ratio=0.9, method=method, calibration=one, probe=None if method in ("whitened", "depth") else one
        )
        compress(checkpoint, how, out=tmp_path / name)
    plain, found = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("plain", "more"))
    assert plain == found


def test_words_that_are_not_known(make: Callable[..., Checkpoint]) -> None:
    with pytest.raises(OptionError, match="did you mean 'teacher'"):
        calibrate(make("chronos-bolt"), series(), decoder="teachr")
    with pytest.raises(OptionError, match="dtype 'int8' is not known"):
        calibrate(make("chronos-bolt"), series(), dtype="int8")
    with pytest.raises(OptionError, match="batch_size 0"):
        calibrate(make("chronos-bolt"), series(), batch_size=0)


def test_a_model_that_overflows_is_named(
    make: Callable[..., Checkpoint], tmp_path: Path, write_checkpoint: Any
) -> None:
    checkpoint = make("chronos-bolt")
    tensors = {name: checkpoint.tensor(name) for name in checkpoint.index}
    tensors["encoder.block.0.layer.1.DenseReluDense.wo.weight"] *= 1e38
    tensors["encoder.block.0.layer.1.DenseReluDense.wi.weight"] *= 1e10
    loud = open_checkpoint(write_checkpoint(tmp_path / "loud", checkpoint.config, tensors))
    with pytest.raises(DataError, match="NaN or Inf"):
        calibrate(loud, series())


def test_a_compressed_model_is_calibrated_like_any(make: Callable[..., Checkpoint], tmp_path: Path) -> None:
    checkpoint = make("chronos-bolt")
    compress(checkpoint, CompressOptions(attention_ratio=0.5), out=tmp_path / "factored")
    small = open_checkpoint(tmp_path / "factored")
    found = calibrate(small, series())
    assert found.settings.fingerprint != calibrate(checkpoint, series()).settings.fingerprint
    assert {stream_of(site) for site in small.sites()} <= found.streams.keys()
    with pytest.raises(OptionError, match="belongs to"):
        replace(found, settings=replace(found.settings, fingerprint="0" * 16)).check(small)


def made(n: int) -> CalibrationSet:
    """Series without holes: eight patches of four values."""
    return calibration_set(f"kernelsynth:{n}", context=32, horizon=8)


def test_positions_matrices_and_ranks(bolt_folder: Path) -> None:
    checkpoint = open_checkpoint(bolt_folder)
    found = calibrate(checkpoint, made(20))
    report = report_on(found, checkpoint, checkpoint.sites(), "m.safetensors")
    by_stack = {stream.stack: stream for stream in report.streams}
    assert list(by_stack) == ["encoder", "memory", "decoder"]
    assert {stack: stream.tokens for stack, stream in by_stack.items()} == {
        "encoder": 20 * 9,
        "memory": 20 * 9,
        "decoder": 20,
    }
    assert sorted(name for stream in report.streams for name in stream.matrices) == sorted(
        site.module for site in checkpoint.sites()
    )
    for stream in report.streams:
        values = torch.linalg.eigvalsh(found.streams[stream.name].second).clamp(min=0)
        share = values / values.sum()
        entropy = -sum(float(p) * math.log(float(p)) for p in share if p > 0)
        assert stream.effective_rank == pytest.approx(math.exp(entropy), rel=1e-6)
    assert report.notes == ()
    document = json.loads(codec.text(report))
    assert document["schema"] == "rankscope/calibrate@1"
    assert (document["series"], document["out"], document["decoder"]) == (20, "m.safetensors", "teacher")


@pytest.mark.parametrize(("select", "width"), [("attention", 16), ("attention,mlp", 24)])
def test_a_decoder_of_one_position_says_how_many_series_would_do(select: str, width: int, bolt_folder: Path) -> None:
    """Attention reads streams of 16, the second half of a feed-forward block its 24 hidden units."""
    checkpoint = open_checkpoint(bolt_folder)
    sites = checkpoint.sites(select)

    def notes(series: int) -> list[str]:
        found = report_on(calibrate(checkpoint, made(series), sites=sites), checkpoint, sites).notes
        return [note for note in found if note.startswith("decoder: ")]

    (note,) = notes(3)
    assert note.startswith(f"decoder: 3 positions in 3 series, fewer than the {width} inputs of decoder.block.0.")
    assert f"use at least {width} series" in note
    assert notes(width - 1) != notes(width) == []


def test_the_number_of_series_is_the_least_that_suffices() -> None:
    for ranks, tokens, series in ((256, 8, 8), (64, 100, 3), (7, 3, 2), (12, 12, 4)):
        enough = series_for(ranks, tokens, series)
        assert enough * tokens / series >= ranks > (enough - 1) * tokens / series


def test_copies_of_one_series_are_noticed(chronos_t5_folder: Path) -> None:
    checkpoint = open_checkpoint(chronos_t5_folder)
    flat = CalibrationSet("flat", torch.full((6, 32), 3.0), torch.full((6, 8), 3.0))
    report = report_on(calibrate(checkpoint, flat), checkpoint, checkpoint.sites())
    (note,) = [note for note in report.notes if "first layer's input" in note]
    assert "198 positions show 2 of the 16 directions" in note  # one value, and the end of every series
    assert report_on(calibrate(checkpoint, made(6)), checkpoint, checkpoint.sites()).notes == ()


@pytest.mark.parametrize("how", ["shape", "negative"])
def test_sums_that_are_none_are_refused(how: str, bolt_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "moments.safetensors"
    calibrate(open_checkpoint(bolt_folder), made(2), file=file)
    with safe_open(file, "pt") as opened:
        metadata = opened.metadata()
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith(":inside"))
    changes: dict[str, Callable[[Any], Any]] = {
        "shape": lambda c: c[:-1].contiguous(),
        "negative": lambda c: c - 1e6 * torch.eye(len(c), dtype=c.dtype),
    }
    tensors[name] = changes[how](tensors[name])
    save_file(tensors, file, metadata=metadata)
    with pytest.raises(DataError, match="is damaged") as caught:
        load_calibration(file)
    assert "\n" not in str(caught.value)


def test_series_that_attend_to_each_other_are_shown_in_groups_whatever_the_batch(
    write_checkpoint: Any, tiny_config: Any, tmp_path: Path
) -> None:
    source = open_checkpoint(write_checkpoint(tmp_path / "m", tiny_config("chronos-2")))
    few, eight = (calibrate(source, series(16), batch_size=size) for size in (2, 8))
    assert few.settings.batch_size == 8
    assert all(torch.equal(few.streams[name].second, eight.streams[name].second) for name in few.streams)
