"""Sublayers and streams under one budget."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from rankscope import load_pipeline, open_checkpoint
from rankscope.compress import Budget, CompressOptions, compress, read_recipe, sensitivity
from rankscope.compress.calibration import calibrate
from rankscope.compress.calibration.sources import named_set
from rankscope.compress.joint_stream import JointStream, Split, splits, suited
from rankscope.compress.prepare import prepare
from rankscope.compress.slicing import Slicing, slice_checkpoint
from rankscope.compress.stream import measure, stream_taps
from rankscope.engine import silent
from rankscope.errors import OptionError
from rankscope.families.stream import read_widths

FEW = CompressOptions(ratio=0.6, calibration="mixture:16", probe="mixture:8")
KINDS = ("chronos-t5", "chronos-bolt", "chronos-2")


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory, write_checkpoint: Any, tiny_config: Any) -> Any:
    """``wide("chronos-t5")``: a random model's folder, made once."""
    made: dict[str, Path] = {}

    def get(kind: str) -> Path:
        if kind not in made:
            made[kind] = write_checkpoint(tmp_path_factory.mktemp(kind) / kind, tiny_config(kind, num_decoder_layers=2))
        return made[kind]

    return get


def series_of(folder: Path) -> Any:
    return named_set(open_checkpoint(folder), "mixture:8")


def forecast(folder: Path) -> torch.Tensor:
    torch.manual_seed(0)
    series = list(torch.randn(3, 32, generator=torch.Generator().manual_seed(4)).cumsum(1))
    quantiles, _ = load_pipeline(str(folder), runtime="stock").predict_quantiles(series, prediction_length=8)
    return torch.stack(list(quantiles))


@pytest.mark.parametrize("kind", KINDS)
def test_a_size_of_the_whole_model_narrows_sublayers_and_streams(kind: str, wide: Any, tmp_path: Path) -> None:
    folder = wide(kind)
    report = compress(folder, replace(FEW, ratio=0.45), out=tmp_path / "small")
    before, small = open_checkpoint(folder), open_checkpoint(tmp_path / "small")
    assert report.method == "joint+stream"
    assert report.parameters == {"before": before.parameters, "after": small.parameters}
    assert 0.35 * before.parameters < small.parameters <= 0.45 * before.parameters
    assert report.bytes == {"before": before.bytes, "after": small.bytes}
    assert report.ratio == small.parameters / before.parameters
    assert report.model == str(folder)
    assert report.asked == {"ratio": 0.45}
    assert min(read_widths(small.config).values()) < before.config["d_model"]
    assert {"stream", "mlp_in"} <= {site.role for site in report.sites}
    assert forecast(tmp_path / "small").isfinite().all()
    assert not [path for path in (tmp_path / "small").iterdir() if path.name.startswith(".")]
    assert json.loads((tmp_path / "small" / "compress.json").read_text())["method"] == "joint+stream"


@pytest.mark.parametrize(
    "options",
    [
        {"budget": Budget("parameters", 5000)},
        {"budget": Budget("bytes", 20_000)},
        {"budget": Budget("bytes", 9000), "storage": "int8"},
        {"budget": Budget("bytes", 9960), "storage": "int8"},
    ],
    ids=["parameters", "bytes", "bytes-int8", "bytes-int8-larger"],
)
def test_every_size_of_the_whole_model_is_kept(options: dict[str, Any], wide: Any, tmp_path: Path) -> None:
    compress(wide("chronos-bolt"), replace(FEW, ratio=None, **options), out=tmp_path / "small")
    small = open_checkpoint(tmp_path / "small")
    limit = options["budget"].limit
    assert 0.8 * limit < (small.parameters if options["budget"].kind == "parameters" else small.bytes) <= limit
    assert small.storage == options.get("storage", "float")


def test_all_of_a_model_is_the_model(wide: Any, tmp_path: Path) -> None:
    folder = wide("chronos-bolt")
    compress(folder, replace(FEW, ratio=1.0), out=tmp_path / "same")
    torch.testing.assert_close(forecast(tmp_path / "same"), forecast(folder), rtol=0, atol=0)
    compress(folder, replace(FEW, ratio=1.0, storage="int8"), out=tmp_path / "rounded")
    assert open_checkpoint(tmp_path / "rounded").storage == "int8"


def found(folder: Path, share: float) -> tuple[Any, Slicing, dict[str, Any], list[Split]]:
    source = open_checkpoint(folder)
    prepared = prepare(source, replace(FEW, method="joint"))
    slicing, bases = Slicing(source), measure(source, replace(FEW, method="stream"), silent)
    return (
        prepared,
        slicing,
        bases,
        list(splits(prepared, slicing, bases, share, prepared.by_budget(Budget("ratio", share)))),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_widths_of_a_split_meet_the_budget_after_its_cut(kind: str, wide: Any, tmp_path: Path) -> None:
    """The cut is written and sliced in earnest: the model has as many numbers as the widths promise."""
    from rankscope.compress.apply import write_folder

    share = 0.6
    prepared, slicing, _, pairs = found(wide(kind), share)
    limit = share * slicing.source.parameters
    one = next(pair for pair in pairs if pair.widths and prepared.source.parameters - pair.plan.before + pair.plan.after
               < 0.85 * slicing.source.parameters)  # fmt: skip
    write_folder(replace(prepared, how=replace(prepared.how, refine=False)), one.plan, tmp_path / "cut")
    cut = Slicing(open_checkpoint(tmp_path / "cut"))
    exact = sum(prod(shape) for shape in cut.sliced(one.widths).values())
    assert exact <= limit
    slice_checkpoint(
        cut.source, replace(FEW, ratio=None, method="stream", budget=Budget("parameters", exact)), out=tmp_path / "both"
    )
    assert open_checkpoint(tmp_path / "both").parameters <= exact


def test_the_split_of_least_loss_is_taken(wide: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses by hand: what is dropped of the cuts' worth and of the coordinates' squares."""
    from rankscope.compress import joint_stream

    _, _, bases, pairs = found(wide("chronos-bolt"), 0.6)
    for pair in pairs:
        cut = [site.spectrum.worth[site.rank :] for site in pair.plan.sites if site.changed]
        assert pair.lost == pytest.approx(float(torch.cat([torch.zeros(1), *cut]).sum()), rel=1e-9)
        assert pair.sliced == pytest.approx(sum(float((bases[p].sigma[k:] ** 2).sum()) for p, k in pair.widths.items()))
    assert pairs[0].widths == {}
    sizes = [pair.plan.after for pair in pairs]
    assert sizes == sorted(sizes)
    taken = []

    def told(*args: Any) -> Any:
        for pair in pairs:
            taken.append(pair)
            yield pair

    monkeypatch.setattr(joint_stream, "splits", told)
    compress(wide("chronos-bolt"), FEW, out=tmp_path / "small")
    best = min(pairs, key=lambda pair: pair.lost + pair.sliced)
    written = open_checkpoint(tmp_path / "small")
    rows = {site.name: written.index[site.name].shape[0] for site in written.sites("mlp") if site.role == "mlp_in"}
    width = {one.spectrum.name: one.rank for one in best.plan.sites}
    assert taken
    assert rows
    for name, kept in rows.items():
        assert kept == width[next(key for key in width if name.startswith(key))]


def test_the_recipe_makes_the_same_model_again(wide: Any, tmp_path: Path) -> None:
    folder = wide("chronos-t5")
    compress(folder, replace(FEW, storage="int8"), out=tmp_path / "first")
    recipe = read_recipe(tmp_path / "first")
    assert recipe.method == "joint+stream"
    compress(folder, recipe.options(open_checkpoint(folder)), out=tmp_path / "again")
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("first", "again"))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_moments_bring_their_decoder_and_their_seed(wide: Any, tmp_path: Path) -> None:
    source = open_checkpoint(wide("chronos-t5"))
    series = named_set(source, "mixture:16", seed=5)
    sampled = calibrate(source, series, sites=source.sites("all"), decoder="sampled", seed=5)
    compress(source, replace(FEW, calibration=sampled), out=tmp_path / "sampled")
    compress(source, replace(FEW, calibration=series), out=tmp_path / "taught")
    recipe = read_recipe(tmp_path / "sampled")
    assert (recipe.decoder, recipe.calibration, recipe.calibration_seed) == ("sampled", "mixture:16", 5)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("sampled", "taught"))
    assert any(one[name].shape != other[name].shape or not torch.equal(one[name], other[name]) for name in one)
    assert recipe.options(source).calibration.name == "mixture:16"  # the series of that seed are found again
    with pytest.raises(OptionError, match="was made with decoder sampled, not teacher"):
        compress(source, replace(FEW, calibration=sampled, decoder="teacher"), out=tmp_path / "no")


def test_the_report_counts_what_was_written(wide: Any, tmp_path: Path) -> None:
    report = compress(wide("chronos-bolt"), replace(FEW, ratio=0.45), out=tmp_path / "small")
    written = open_checkpoint(tmp_path / "small")
    stored = {site.name: written.stored(site) for site in written.sites("all")}
    told = {site.name: site.parameters_after for site in report.sites if site.role != "stream"}
    assert told == {name: stored[name] for name in told}
    assert sum(told.values()) <= written.parameters


def test_the_probe_that_was_taken_by_default_is_in_the_recipe(wide: Any, tmp_path: Path) -> None:
    for name, options in {"both": FEW, "joint": replace(FEW, method="joint", ratio=0.8)}.items():
        compress(wide("chronos-bolt"), replace(options, probe=None), out=tmp_path / name)
        assert read_recipe(tmp_path / name).probe == "mixture:128"


@pytest.mark.parametrize("given", ["a name", "moments"])
def test_nothing_is_computed_twice(given: str, wide: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One set of series (two with moments, once to see if they can be had), one probe of the original, and no pass for
    moments that are given.
    """
    from rankscope.compress.calibration import collect, sources

    source, counts = open_checkpoint(wide("chronos-bolt")), Counter[str]()
    everything = tuple(site for site in source.sites(["all"]) if site.role != "embedding")
    moments = calibrate(source, named_set(source, "mixture:16"), sites=everything)
    compress(source, FEW, out=tmp_path / "plain")

    def count(home: Any, name: str) -> None:
        whole = getattr(home, name)

        def counting(*args: Any, **options: Any) -> Any:
            counts[name] += 1
            return whole(*args, **options)

        monkeypatch.setattr(home, name, counting)

    for home, name in ((sources, "named_set"), (collect, "calibrate"), (sensitivity, "questions")):
        count(home, name)
    how = FEW if given == "a name" else replace(FEW, calibration=moments)
    compress(source, how, out=tmp_path / "counted")
    # a second probe is that of what the cuts have left
    expected = {"named_set": 2, "calibrate": 1} if given == "a name" else {"named_set": 3}
    assert counts == {"questions": 2, **expected}
    plain, counted = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("plain", "counted"))
    assert plain == counted


def test_a_text_model_is_cut_by_sensitivity_too(tmp_path: Path, write_checkpoint: Any, tiny_config: Any) -> None:
    file, words = tmp_path / "ids.txt", torch.randint(2, 60, (3000,), generator=torch.Generator().manual_seed(3))
    file.write_text(" ".join(map(str, words.tolist())))
    source = open_checkpoint(write_checkpoint(tmp_path / "text", tiny_config("t5")))
    how = CompressOptions(ratio=0.7, method="joint+stream", calibration=f"text:{file}:8")
    made = JointStream(source, how, silent)
    assert made.prepared.allocation == "sensitivity"
    assert made.choose(Budget("ratio", 0.7)).lost > 0


def test_taps_that_share_a_probe_measure_what_they_would_alone(wide: Any) -> None:
    source = open_checkpoint(wide("chronos-t5"))
    how, taps = replace(FEW, calibration=named_set(source, "mixture:16")), stream_taps(source)
    shared = prepare(source, replace(how, method="joint"), others=taps)
    for one, other in zip(shared.flat, prepare(source, replace(how, method="joint")).flat, strict=True):
        assert one.worth is not None
        assert other.worth is not None
        assert torch.equal(one.worth, other.worth)
    alone = measure(source, replace(how, method="stream"), silent)
    for point, found in measure(source, replace(how, method="stream"), silent, taps).items():
        assert torch.equal(found.sigma, alone[point].sigma)


def test_where_it_is_the_default(wide: Any, tmp_path: Path, write_checkpoint: Any, tiny_config: Any) -> None:
    source = open_checkpoint(wide("chronos-bolt"))
    assert suited(source, FEW)
    assert suited(source, replace(FEW, ratio=None, budget=Budget("bytes", 9000)))
    moments = calibrate(source, named_set(source, "mixture:4"))
    assert suited(source, replace(FEW, calibration=moments))
    lost = replace(moments, settings=replace(moments.settings, data="other"))
    assert not suited(source, replace(FEW, calibration=lost))
    for other in (
        {"method": "joint"},
        {"sites": "attention"},
        {"allocation": "energy"},
        {"ratio": None, "eps": 0.1},
        {"ratio": None, "attention_ratio": 0.5},
        {"ratio": None, "budget": Budget("cache-bytes", 9000)},
    ):
        assert not suited(source, replace(FEW, **other)), other
    assert not suited(open_checkpoint(write_checkpoint(tmp_path / "text", tiny_config("t5"))), FEW)
    compress(source, replace(FEW, method="stream"), out=tmp_path / "sliced")
    assert not suited(open_checkpoint(tmp_path / "sliced"), FEW)
    again = compress(tmp_path / "sliced", replace(FEW, ratio=0.8), out=tmp_path / "again")
    assert again.method == "joint"


@pytest.mark.parametrize(
    ("options", "lower"),
    [
        ({"ratio": 0.01}, "go lower with --layers N"),
        ({"ratio": None, "budget": Budget("parameters", 90)}, "go lower with --layers N"),
        ({"ratio": None, "budget": Budget("bytes", 300)}, "go lower with --storage int8, or with --layers N"),
        ({"ratio": None, "budget": Budget("bytes", 90), "storage": "int8"}, "go lower with --layers N"),
    ],
    ids=["ratio", "parameters", "bytes", "bytes-int8"],
)
def test_out_of_reach_names_the_least_and_what_goes_lower(
    options: dict[str, Any], lower: str, wide: Any, tmp_path: Path
) -> None:
    how = replace(FEW, method="joint+stream", **options)
    with pytest.raises(OptionError, match="is out of reach: ") as caught:
        compress(wide("chronos-bolt"), how, out=tmp_path / "small")
    said = str(caught.value)
    assert lower in said
    assert "\n" not in said
    share = float(re.search(r"at least ([\d.]+) of all parameters", said)[1])  # type: ignore[index]
    size = re.search(r"\((\d+) (?:parameters|bytes)\)", said)
    least: dict[str, Any] = {"ratio": share, "budget": None}
    if how.budget is not None and how.storage is None:
        assert size is not None
        least = {"budget": replace(how.budget, limit=int(size[1]))}
    compress(wide("chronos-bolt"), replace(how, **least), out=tmp_path / "least")
    small, whole = open_checkpoint(tmp_path / "least"), open_checkpoint(wide("chronos-bolt"))
    assert share - 1e-3 < small.parameters / whole.parameters <= share  # factors that do not pay are put together
    assert set(read_widths(small.config).values()) == {1}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ratio": None, "eps": 0.1}, "takes a size of the whole model"),
        ({"sites": "attention"}, "leave out sites and allocation"),
        ({"allocation": "energy"}, "leave out sites and allocation"),
        ({"ratio": 0.001}, "out of reach"),
    ],
)
def test_what_it_cannot_do_is_refused(options: dict[str, Any], said: str, wide: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=said):
        compress(wide("chronos-bolt"), replace(FEW, method="joint+stream", **options), out=tmp_path / "small")
    assert list(tmp_path.iterdir()) == []


def test_the_least_of_a_multiple_can_be_had(wide: Any, tmp_path: Path) -> None:
    source, how = open_checkpoint(wide("chronos-bolt")), replace(FEW, multiple=4)
    least = JointStream(source, replace(how, ratio=None), silent).least
    with pytest.raises(OptionError, match=re.escape(Budget("ratio", 1.0).shown(least))):
        compress(source, replace(how, ratio=0.9 * least), out=tmp_path / "less")
    report = compress(source, replace(how, ratio=least * (1 + 1e-9)), out=tmp_path / "least")
    assert 0.9 * least < report.ratio <= least * (1 + 1e-9)
    assert set(read_widths(open_checkpoint(tmp_path / "least").config).values()) == {4}


def test_a_multiple_that_is_too_large_is_named(wide: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"or with a smaller --multiple \(1000 now\)\.$"):
        compress(wide("chronos-bolt"), replace(FEW, multiple=1000), out=tmp_path / "small")


def test_a_model_without_a_cache_has_no_budget_for_one(wide: Any, tmp_path: Path) -> None:
    how = CompressOptions(budget=Budget("cache-bytes", 1000), calibration=str(tmp_path / "never read.csv"))
    with pytest.raises(OptionError, match="keeps no cache of keys and values"):
        compress(wide("chronos-2"), how, out=tmp_path / "small")


def test_no_multiple_makes_a_stream_wider_than_it_is(wide: Any, tmp_path: Path) -> None:
    how = replace(FEW, ratio=None, budget=Budget("bytes", 10**7), method="stream", multiple=32)
    compress(wide("chronos-bolt"), how, out=tmp_path / "same")
    torch.testing.assert_close(forecast(tmp_path / "same"), forecast(wide("chronos-bolt")), rtol=1e-5, atol=1e-5)
    with pytest.raises(OptionError, match="bytes 5000 is out of reach: streams of width 16 leave"):
        compress(wide("chronos-bolt"), replace(how, budget=Budget("bytes", 5000)), out=tmp_path / "small")


@pytest.mark.parametrize("kind", KINDS)
def test_narrow_streams_forecast_in_float16(kind: str, wide: Any, tmp_path: Path) -> None:
    compress(wide(kind), replace(FEW, ratio=0.45, dtype="float16"), out=tmp_path / "half")
    assert read_widths(open_checkpoint(tmp_path / "half").config)
    assert forecast(tmp_path / "half").isfinite().all()


@pytest.mark.parametrize("method", ["joint+stream", "stream", "depth"])
def test_moments_of_other_weights_are_refused(method: Any, wide: Any, tmp_path: Path) -> None:
    other = calibrate(open_checkpoint(wide("chronos-t5")), series_of(wide("chronos-t5")))
    how = replace(FEW, ratio=0.8, method=method, calibration=other, probe=None)
    with pytest.raises(OptionError, match="whose weights differ from those of"):
        compress(wide("chronos-bolt"), how, out=tmp_path / "x")


def test_a_stream_that_is_zero_is_cut_without_a_division_by_its_energy(
    wide: Any, write_checkpoint: Any, tmp_path: Path
) -> None:
    source = open_checkpoint(wide("chronos-bolt"))
    tensors = {name: source.tensor(name) for name in source.index}
    silenced = {
        name: torch.zeros_like(tensor)
        for name, tensor in tensors.items()
        if name.startswith(("input_patch_embedding", "shared")) or name.endswith(("o.weight", "wo.weight"))
    }
    folder = write_checkpoint(tmp_path / "silent", source.config, {**tensors, **silenced})
    report = compress(folder, replace(FEW, ratio=0.7, method="stream"), out=tmp_path / "small")
    assert report.ratio <= 0.7
