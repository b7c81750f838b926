"""Budgets of parameters, bytes and cache: never exceeded, and counted as what is written takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rankscope import open_checkpoint
from rankscope.checkpoints import Checkpoint
from rankscope.compress import Budget, CompressOptions, CompressReport, compress
from rankscope.compress.calibration import Calibration
from rankscope.errors import DataError, OptionError
from rankscope.io import codec

Toys = Callable[[str], tuple[Checkpoint, Calibration]]


UNITS = {
    "parameters": lambda checkpoint: checkpoint.parameters,
    "bytes": lambda checkpoint: checkpoint.bytes,
    "cache-bytes": lambda checkpoint: filled_cache(checkpoint),
}


def filled_cache(checkpoint: Checkpoint) -> int:
    """Bytes of keys and values after a whole forecast of one series and one path: 32 values, and 8 more."""
    module = checkpoint.module(next(iter(checkpoint.index.values())).dtype)
    tokens = torch.randint(2, 62, (1, 33), generator=torch.Generator().manual_seed(0))
    made = module.generate(
        input_ids=tokens,
        attention_mask=torch.ones_like(tokens),
        min_new_tokens=8,
        max_new_tokens=8,
        return_dict_in_generate=True,
    )
    cache = made.past_key_values
    layers = [*cache.self_attention_cache.layers, *cache.cross_attention_cache.layers]
    return sum(tensor.nbytes for layer in layers for tensor in (layer.keys, layer.values))


@pytest.mark.slow
@pytest.mark.parametrize("kind", UNITS)
@pytest.mark.parametrize("sites", ["attention", "decoder,q,k"])
def test_budgets_are_never_exceeded_and_used_to_within_one_rank(
    kind: str, sites: str, toys: Toys, tmp_path: Path
) -> None:
    """Counted in what was written: numbers, bytes, and the cache of a forecast that was run."""
    source, moments = toys("chronos-t5")
    measure = UNITS[kind]
    whole = measure(source)
    report = compress(
        source,
        CompressOptions(attention_ratio=0.26, method="joint", calibration=moments, sites=sites),
        out=tmp_path / "least",
    )
    least = measure(open_checkpoint(tmp_path / "least"))
    rank = {"parameters": 32, "bytes": 128, "cache-bytes": 33 * 4}[kind]
    for index, share in enumerate((0.1, 0.5, 0.9)):
        limit = round(least + share * (whole - least))
        out = tmp_path / str(index)
        report = compress(
            source,
            CompressOptions(budget=Budget(kind, limit), method="joint", calibration=moments, sites=sites),
            out=out,
        )
        used = measure(open_checkpoint(out))
        assert limit - rank < used <= limit
        assert "ratio" not in report.asked
    if kind == "bytes":
        assert used == report.bytes["after"]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_bytes_are_counted_in_the_format_that_is_written(dtype: str | None, toys: Toys, tmp_path: Path) -> None:
    source, moments = toys("chronos-bolt")
    limit = round(source.bytes * (0.85 if dtype is None else 0.42))
    for method in ("joint", "whitened", "svd"):
        compress(
            source,
            CompressOptions(
                sites="attention", budget=Budget("bytes", limit), method=method, calibration=moments, dtype=dtype
            ),
            out=tmp_path / method,
        )
        used = open_checkpoint(tmp_path / method).bytes
        assert limit - 4 * 32 < used <= limit
        assert used < (tmp_path / method / "model.safetensors").stat().st_size


def test_tied_copies_count_in_bytes(toys: Toys, tmp_path: Path, write_checkpoint: Any) -> None:
    """A table stored twice is written twice: a budget of bytes has to know."""
    source, _ = toys("chronos-t5")
    tensors = {name: source.tensor(name) for name in source.index}
    tensors["encoder.embed_tokens.weight"] = tensors["shared.weight"].clone()
    double = open_checkpoint(write_checkpoint(tmp_path / "double", source.config, tensors))
    assert double.parameters == source.parameters
    limit = round(double.bytes * 0.8)
    compress(
        double, CompressOptions(sites="attention", method="svd", budget=Budget("bytes", limit)), out=tmp_path / "small"
    )
    assert limit - 4 * 32 < open_checkpoint(tmp_path / "small").bytes <= limit


@pytest.mark.parametrize("kind", ["chronos-t5", "chronos-bolt", "t5"])
def test_a_ratio_is_of_all_parameters(kind: str, toys: Toys, tmp_path: Path) -> None:
    """By default everything linear is cut, in one way or the other; the report and the folder agree on the size."""
    source, moments = toys(kind)
    report = compress(source, CompressOptions(ratio=0.6, calibration=moments, allocation="energy"), out=tmp_path / "s")
    small = open_checkpoint(tmp_path / "s")
    assert small.parameters == report.parameters["after"]
    assert small.parameters / source.parameters == report.ratio <= 0.6
    assert report.ratio > 0.55
    assert report.asked == {"ratio": 0.6}
    assert (report.method, report.selected_ratio < report.ratio) == ("joint", True)
    linear = {site.name for site in source.sites("all") if site.role != "embedding"}
    assert {site.name for site in report.sites} == linear
    tight = CompressOptions(ratio=0.02, calibration=moments, allocation="energy")
    with pytest.raises(OptionError, match=r"ratio 0.02 is out of reach: the least .* gives 0\.\d+ with the selected"):
        compress(source, tight, out=tmp_path / "no")


def test_sizes_of_the_paper_cut_attention_by_svd(toys: Toys, tmp_path: Path) -> None:
    source, _ = toys("chronos-bolt")
    for number, size in enumerate(({"eps": 0.3}, {"attention_ratio": 0.6})):
        report = compress(source, CompressOptions(**size), out=tmp_path / str(number))
        assert (report.method, report.calibration) == ("svd", None)
        assert {site.role.partition(".")[2] for site in report.sites} == set("qkvo")
        assert list(report.asked) == [next(iter(size)).replace("_", "-")]
        cut = report.parameters["before"] - report.parameters["after"]
        assert cut == report.selected_parameters["before"] - report.selected_parameters["after"]


def test_a_report_of_version_1_is_read_with_ratios_of_the_whole(toys: Toys, tmp_path: Path) -> None:
    source, _ = toys("chronos-bolt")
    now = codec.plain(compress(source, CompressOptions(attention_ratio=0.6), out=tmp_path / "small"))
    old = {key: value for key, value in now.items() if key not in ("asked", "selected_ratio")}
    old |= {"schema": "rankscope/compress@1", "target_ratio": 0.6, "ratio": now["selected_ratio"]}
    old["search"] = {
        "measure": "loss",
        "max_loss": 0.1,
        "score": 1.0,
        "steps": [{"ratio": now["selected_ratio"], "score": 1.0, "holds": True}],
    }
    read = codec.parse(CompressReport, old)
    assert (read.ratio, read.selected_ratio) == pytest.approx((now["ratio"], now["selected_ratio"]), rel=1e-12)
    same = replace(read, ratio=now["ratio"], search=None)
    assert codec.plain(same) == now
    assert read.search is not None
    assert read.search.steps[0].ratio == pytest.approx(now["ratio"], rel=1e-12)
    with pytest.raises(DataError, match="lacks a part"):
        codec.parse(CompressReport, {key: value for key, value in old.items() if key != "parameters"})


@pytest.mark.parametrize("limit", [float("nan"), float("inf"), 0, True, "5MB", None])
@pytest.mark.parametrize("kind", ["bytes", "parameters", "time", "layers"])
@pytest.mark.usefixtures("untyped")
def test_what_is_no_limit_is_refused(kind: str, limit: Any) -> None:
    with pytest.raises(OptionError, match=f"^{kind} {limit!r} "):
        Budget(kind, limit)


@pytest.mark.parametrize("kind", ["bytes", "parameters", "cache-bytes", "layers"])
def test_sizes_are_whole_numbers(kind: str) -> None:
    with pytest.raises(OptionError, match=rf"^{kind} 1\.5 is not a budget: give a whole number, at least 1\.$"):
        Budget(kind, 1.5)
    assert Budget(kind, 2.0).limit == 2


@pytest.mark.usefixtures("untyped")
def test_a_ratio_is_a_number() -> None:
    assert Budget("ratio", "0.4").limit == 0.4  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="ratio must lie in"):
        Budget("ratio", True)
