"""Folders in int8: what is in them, that they answer as the rounded matrices do, and go wherever others go."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from rankscope import load_pipeline, measure_spectrum, open_checkpoint
from rankscope.compress import Budget, CompressOptions, compress, write
from rankscope.compress.calibration import calibrate, calibration_set
from rankscope.engine.device import computing_dtype
from rankscope.errors import CheckpointError, OptionError, RankscopeError
from rankscope.families.weight_layout import scale_name
from rankscope.numerics import FactoredMatrix
from rankscope.numerics.quantise import quantise

FORECASTABLE = ("chronos-t5", "chronos-bolt", "chronos-2")
ALL = (*FORECASTABLE, "t5", "t5-gated")
SET = "kernelsynth:8"
CASES = [
    *((kind, {}) for kind in ALL),
    ("chronos-t5", {"eps": 0.3, "sites": ["all"]}),
    ("chronos-2", {"attention_ratio": 0.5, "method": "whitened", "calibration": SET}),
    ("chronos-t5", {"attention_ratio": 0.5, "method": "joint", "calibration": SET, "allocation": "energy"}),
    (
        "chronos-bolt",
        {"attention_ratio": 0.5, "method": "joint", "calibration": SET, "allocation": "energy", "sites": ["all"]},
    ),
]
NAMES = [f"{kind}-{how.get('method', 'svd' if how else 'dense')}" for kind, how in CASES]


@pytest.fixture
def make(tmp_path: Path, write_checkpoint: Any, tiny_config: Any) -> Callable[..., Path]:
    """``make(kind)``: a random checkpoint."""

    def build(kind: str, name: str = "source", **changes: Any) -> Path:
        # Equal depths: transformers 5 sizes the decoder's cache by the encoder's depth.
        return write_checkpoint(tmp_path / name, tiny_config(kind, num_decoder_layers=2, **changes))

    return build


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def answer(folder: Path, kind: str) -> torch.Tensor:
    if kind not in FORECASTABLE:
        tokens = torch.arange(2, 22).reshape(2, 10)
        with torch.no_grad():
            return open_checkpoint(folder).module()(input_ids=tokens, decoder_input_ids=tokens[:, :4]).logits
    torch.manual_seed(7)
    series = [torch.sin(torch.arange(24.0)), torch.arange(9.0)]
    return torch.stack(list(load_pipeline(folder).predict(series, prediction_length=6)))


@pytest.mark.parametrize(("kind", "how"), CASES, ids=NAMES)
def test_whole_numbers_answer_as_the_matrices_that_they_stand_for(
    kind: str, how: dict[str, Any], make: Callable[..., Path], tmp_path: Path
) -> None:
    source, small = make(kind), tmp_path / "int8"
    report = compress(source, CompressOptions(storage="int8", **how), out=small)
    plain = compress(small, CompressOptions(storage="float"), out=tmp_path / "float")
    assert (report.storage, plain.storage, report.bytes["after"]) == ("int8", "float", plain.bytes["before"])
    assert open_checkpoint(tmp_path / "float").storage == "float"
    left, right = answer(small, kind), answer(tmp_path / "float", kind)
    torch.testing.assert_close(left, right, rtol=1e-3, atol=1e-4)
    assert not torch.equal(right, answer(source, kind))


@pytest.mark.parametrize(("kind", "how"), CASES, ids=NAMES)
def test_what_is_in_the_folder(kind: str, how: dict[str, Any], make: Callable[..., Path], tmp_path: Path) -> None:
    source, small = make(kind), tmp_path / "int8"
    report = compress(source, CompressOptions(storage="int8", **how), out=small)
    plain = compress(source, CompressOptions(**how or {"attention_ratio": 1.0}), out=tmp_path / "float")
    assert sorted(file.suffix for file in small.iterdir()) in (
        [".json"] * 2 + [".md", ".safetensors", ".yaml"],
        [".json"] * 3 + [".md", ".safetensors", ".yaml"],
    )
    assert json.loads((small / "config.json").read_text())["rankscope"]["storage"] == "int8"
    assert "storage" not in json.loads((tmp_path / "float" / "config.json").read_text())["rankscope"]
    checkpoint, rounded, exact = open_checkpoint(small), weights(small), weights(tmp_path / "float")
    whole = {name for name, tensor in rounded.items() if tensor.dtype == torch.int8}
    assert whole
    assert rounded.keys() == exact.keys() | {scale_name(name) for name in whole}
    for name, tensor in exact.items():
        if name not in whole:
            assert torch.equal(tensor, rounded[name]), name
            continue
        scale = rounded[scale_name(name)]
        assert scale.shape == tensor.shape[:1]
        error = (tensor - checkpoint.tensor(name)).abs()
        assert bool((error <= scale.float()[:, None] / 2).all()), name
    stays = ("shared", "norm", "bias", "lm_head")
    assert {name for name in exact if not any(word in name for word in stays)} == whole
    stored = sum(tensor.nbytes for tensor in rounded.values())
    assert (
        stored
        == report.bytes["after"]
        == checkpoint.bytes
        < plain.bytes["after"]
        == open_checkpoint(tmp_path / "float").bytes
    )
    assert checkpoint.parameters == report.parameters["after"] == plain.parameters["after"]
    assert checkpoint.dtype == torch.float32
    assert {site.name: site.rank for site in report.sites} == {
        site.name: site.rank for site in plain.sites if report.sites
    }


@pytest.mark.parametrize(("kind", "how"), CASES[:3] + CASES[5:], ids=NAMES[:3] + NAMES[5:])
def test_what_is_int8_stays_int8_bit_for_bit(
    kind: str, how: dict[str, Any], make: Callable[..., Path], tmp_path: Path
) -> None:
    compress(make(kind), CompressOptions(storage="int8", **how), out=tmp_path / "a")
    again = compress(tmp_path / "a", CompressOptions(attention_ratio=1.0), out=tmp_path / "b")
    assert (again.storage, again.bytes["before"]) == ("int8", again.bytes["after"])
    first, second = weights(tmp_path / "a"), weights(tmp_path / "b")
    assert first.keys() == second.keys()
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())
    assert torch.equal(answer(tmp_path / "a", kind), answer(tmp_path / "b", kind))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["svd", "joint"])
def test_an_int8_folder_is_cut_like_the_dense_one_of_its_matrices(
    method: str, make: Callable[..., Path], tmp_path: Path
) -> None:
    """Ranks, singular values and moments are those of the matrices that the whole numbers stand for."""
    how: dict[str, Any] = {} if method == "svd" else {"calibration": SET}
    compress(make("chronos-bolt"), CompressOptions(storage="int8"), out=tmp_path / "int8")
    compress(tmp_path / "int8", CompressOptions(storage="float"), out=tmp_path / "float")
    a = compress(tmp_path / "int8", CompressOptions(attention_ratio=0.5, method=method, **how), out=tmp_path / "a")
    b = compress(
        tmp_path / "float",
        CompressOptions(attention_ratio=0.5, method=method, storage="int8", **how),
        out=tmp_path / "b",
    )
    assert a.storage == b.storage == "int8"
    assert [site.rank for site in a.sites] == [site.rank for site in b.sites]
    assert a.bytes["after"] == b.bytes["after"]
    torch.testing.assert_close(
        answer(tmp_path / "a", "chronos-bolt"), answer(tmp_path / "b", "chronos-bolt"), rtol=2e-2, atol=2e-2
    )


def test_spectra_and_moments_are_those_of_the_matrices(make: Callable[..., Path], tmp_path: Path) -> None:
    compress(make("chronos-bolt"), CompressOptions(storage="int8"), out=tmp_path / "int8")
    compress(tmp_path / "int8", CompressOptions(storage="float"), out=tmp_path / "float")
    folders = [open_checkpoint(tmp_path / name) for name in ("int8", "float")]
    left, right = (measure_spectrum(folder, eps=(0.1,)) for folder in folders)
    for mine, other in zip(left.sites, right.sites, strict=True):
        assert torch.equal(torch.as_tensor(mine.sigma), torch.as_tensor(other.sigma))
    series = calibration_set(SET, context=32, horizon=8)
    mine, other = (calibrate(folder, series) for folder in folders)
    for site in folders[0].sites():
        torch.testing.assert_close(mine.of(site).second, other.of(site).second, rtol=1e-4, atol=1e-6)


def unit_of_the_head(folder: Path) -> int:
    """Bytes of one of its hidden units, the costliest that can go: its weights, a scale and its bias."""
    index = open_checkpoint(folder).index
    first, last = (index[f"output_patch_embedding.{part}_layer.weight"] for part in ("hidden", "output"))
    return first.shape[1] + last.shape[0] + 2 + first.dtype.itemsize


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("chronos-t5", {"method": "svd"}),
        ("chronos-t5", {"method": "svd", "sites": ["all"]}),
        ("chronos-bolt", {"method": "joint", "calibration": SET, "allocation": "energy"}),
        ("chronos-bolt", {"method": "joint", "calibration": SET, "allocation": "energy", "sites": ["all"]}),
    ],
)
def test_budgets_of_bytes_count_whole_numbers_and_scales(
    kind: str, how: dict[str, Any], make: Callable[..., Path], tmp_path: Path
) -> None:
    source = make(kind)
    whole = compress(source, CompressOptions(storage="int8"), out=tmp_path / "whole").bytes["after"]
    step = 160 if kind == "chronos-t5" else unit_of_the_head(source)
    for share in (0.92, 0.96):
        limit = int(share * whole)
        out = tmp_path / f"{share}"
        report = compress(source, CompressOptions(budget=Budget("bytes", limit), storage="int8", **how), out=out)
        assert limit - step < report.bytes["after"] <= limit
        again = compress(
            out, CompressOptions(budget=Budget("bytes", limit - 100), **how), out=tmp_path / f"{share}-again"
        )
        assert limit - 100 - step < again.bytes["after"] <= limit - 100


@pytest.mark.slow
def test_a_plan_s_bytes_are_the_folder_s(make: Callable[..., Path], tmp_path: Path) -> None:
    """The budget's own account of a plan, to the byte."""
    from rankscope.compress.apply import write_folder
    from rankscope.compress.prepare import prepare

    source = make("chronos-bolt")
    for number, method in enumerate(("svd", "joint")):
        options = CompressOptions(method=method, storage="int8", calibration=SET, allocation="energy", sites=["all"])
        prepared = prepare(source, options)
        budget = prepared.whole(Budget("bytes", 10**9))
        for ratio in (1.0, 0.7, 0.4):
            plan = prepared.by_budget(Budget("attention-ratio", ratio))
            report = write_folder(prepared, plan, tmp_path / f"{number}-{ratio}")
            assert report.bytes["after"] == budget.used(plan.sites)


@pytest.mark.slow
def test_the_cache_keeps_the_format_of_the_model(make: Callable[..., Path], tmp_path: Path) -> None:
    from rankscope.measure.cache import cache_bytes

    source = make("chronos-t5", d_ff=512)  # so that the largest tensor is in int8
    compress(source, CompressOptions(storage="int8"), out=tmp_path / "int8")
    before = cache_bytes(open_checkpoint(source))
    assert cache_bytes(open_checkpoint(tmp_path / "int8")) == before
    how: dict[str, Any] = {"method": "joint", "calibration": SET, "allocation": "energy"}
    compress(
        tmp_path / "int8", CompressOptions(budget=Budget("cache-bytes", before // 2), **how), out=tmp_path / "small"
    )
    assert before // 2 - 200 < cache_bytes(open_checkpoint(tmp_path / "small")) <= before // 2


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_dtype_is_the_format_of_the_rest(dtype: str, make: Callable[..., Path], tmp_path: Path) -> None:
    small = tmp_path / "int8"
    report = compress(make("chronos-bolt"), CompressOptions(storage="int8", dtype=dtype), out=small)
    assert (report.storage, report.dtype) == ("int8", dtype)
    kind = getattr(torch, dtype)
    assert {tensor.dtype for tensor in weights(small).values()} == {torch.int8, torch.bfloat16, kind}
    pipeline = load_pipeline(small)
    assert pipeline.inner_model.dtype == computing_dtype("cpu", kind)
    compress(small, CompressOptions(storage="float"), out=tmp_path / "back")
    assert {tensor.dtype for tensor in weights(tmp_path / "back").values()} == {kind}


def test_a_config_without_a_format_gets_one(make: Callable[..., Path], tmp_path: Path) -> None:
    """Loaders would take that of the first tensor for the model's, and scales are bfloat16."""
    compress(make("chronos-bolt"), CompressOptions(storage="int8"), out=tmp_path / "int8")
    assert json.loads((tmp_path / "int8" / "config.json").read_text())["torch_dtype"] == "float32"
    assert load_pipeline(tmp_path / "int8").inner_model.dtype == torch.float32


def test_odd_sizes_in_shards_stay_aligned(
    make: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make("chronos-bolt", d_model=15, d_ff=25)
    compress(source, CompressOptions(eps=0.4, storage="int8", sites=["all"]), out=tmp_path / "one")
    monkeypatch.setattr(write, "SHARD_BYTES", 3000)
    compress(source, CompressOptions(eps=0.4, storage="int8", sites=["all"]), out=tmp_path / "many")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    for name in ("one", "many"):
        index = open_checkpoint(tmp_path / name).index
        assert any(info.dtype == torch.int8 and info.bytes % 2 for info in index.values())
        for file in (tmp_path / name).glob("*.safetensors"):
            raw = file.read_bytes()
            size = int.from_bytes(raw[:8], "little")
            header = json.loads(raw[8 : 8 + size])
            del header["__metadata__"]
            sizes = {"I8": 1, "BF16": 2, "F32": 4}
            assert all((8 + size + one["data_offsets"][0]) % sizes[one["dtype"]] == 0 for one in header.values())
    assert torch.equal(answer(tmp_path / "one", "chronos-bolt"), answer(tmp_path / "many", "chronos-bolt"))


def test_zero_matrices_stay_zero(make: Callable[..., Path], tmp_path: Path, write_checkpoint: Any) -> None:
    source = open_checkpoint(make("chronos-t5"))
    site = source.sites()[0]
    tensors = {name: source.tensor(name) for name in source.index}
    tensors[site.name] = torch.zeros_like(tensors[site.name])
    folder = write_checkpoint(tmp_path / "zero", source.config, tensors)
    for number, options in enumerate(({}, {"eps": 0.0})):
        compress(folder, CompressOptions(storage="int8", **options), out=tmp_path / str(number))
        stored = open_checkpoint(tmp_path / str(number)).matrix(site)
        assert not (stored.dense() if isinstance(stored, FactoredMatrix) else stored).any()


@pytest.mark.usefixtures("untyped")
def test_unknown_storage(make: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"storage 'int4' is not known: .*Choose from float, int8"):
        compress(make("chronos-t5"), CompressOptions(storage="int4"), out=tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nan_is_refused_in_one_line(
    bad: float, make: Callable[..., Path], tmp_path: Path, write_checkpoint: Any
) -> None:
    source = open_checkpoint(make("chronos-t5"))
    tensors = {name: source.tensor(name) for name in source.index}
    name = "decoder.block.1.layer.2.DenseReluDense.wo.weight"
    tensors[name][3, 2] = bad
    folder = write_checkpoint(tmp_path / "bad", source.config, tensors)
    with pytest.raises(RankscopeError, match=rf"^[^\n]*{name}[^\n]*NaN or Inf[^\n]*$"):
        compress(folder, CompressOptions(storage="int8"), out=tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("kind", ["chronos-bolt", "chronos-2"])
def test_heads_of_version_1_stay_in_floating_point(kind: str, make: Callable[..., Path], tmp_path: Path) -> None:
    """Folders of rankscope 0.1 load as they were written; their heads are rounded once they are compressed again."""
    source, old = make(kind), tmp_path / "int8"
    compress(source, CompressOptions(storage="int8"), out=old)
    tensors, first, exact = weights(old), weights(old), weights(source)
    for name in (name for name in exact if name.startswith("output_patch") and name.endswith(".weight")):
        del tensors[scale_name(name)]
        tensors[name] = exact[name]
    config = json.loads((old / "config.json").read_text())
    assert config["rankscope"]["version"] == 2  # which 0.1 refuses
    config["rankscope"]["version"] = 1
    (old / "config.json").write_text(json.dumps(config))
    save_file(tensors, old / "model.safetensors", metadata={"format": "pt"})
    state = load_pipeline(old).inner_model.state_dict()
    assert all(torch.equal(state[name], tensor.to(state[name].dtype)) for name, tensor in tensors.items())
    compress(old, CompressOptions(storage="int8"), out=tmp_path / "again")
    second = weights(tmp_path / "again")
    assert first.keys() == second.keys()
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())


@pytest.fixture
def int8_folder(make: Callable[..., Path], tmp_path: Path) -> Path:
    """A Chronos-T5 in int8."""
    compress(make("chronos-t5"), CompressOptions(storage="int8"), out=tmp_path / "int8")
    return tmp_path / "int8"


NAME = "encoder.block.0.layer.0.SelfAttention.q.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(scale_name(NAME)), rf"implies {NAME}_scale \[8\], which is not stored"),
        (lambda t: t.update({scale_name(NAME): torch.ones(7)}), rf"disagree at {NAME}_scale"),
        (lambda t: t.update({NAME: torch.zeros(8, 16)}), rf"disagree at {NAME}: rankscope.storage is 'int8', stored"),
        (lambda t: t.pop(NAME), rf"implies {NAME} \[8, 16\], which is not stored"),
    ],
)
def test_weights_that_are_not_what_the_config_says(change: Any, message: str, int8_folder: Path) -> None:
    tensors = weights(int8_folder)
    change(tensors)
    save_file(tensors, int8_folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(int8_folder)


@pytest.mark.parametrize(
    ("storage", "message"),
    [("int4", "rankscope.storage 'int4' is not known"), (3, "storage 3 is not known"), (None, "None is not known")],
)
def test_a_config_that_names_another_storage(storage: Any, message: str, int8_folder: Path) -> None:
    file = int8_folder / "config.json"
    config = json.loads(file.read_text())
    config["rankscope"]["storage"] = storage
    file.write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(int8_folder)


def test_a_config_that_says_nothing_of_whole_numbers(int8_folder: Path) -> None:
    file = int8_folder / "config.json"
    config = json.loads(file.read_text())
    del config["rankscope"]["storage"]
    file.write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"_scale|rankscope\.storage is 'float', stored is int8"):
        open_checkpoint(int8_folder)


def test_a_scale_that_is_no_number_is_found(int8_folder: Path) -> None:
    tensors = weights(int8_folder)
    tensors[scale_name(NAME)][2] = float("nan")
    save_file(tensors, int8_folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=rf"{NAME} holds NaN or Inf"):
        open_checkpoint(int8_folder).tensor(NAME)


def test_rounding_reads_back_as_it_was_written(int8_folder: Path) -> None:
    checkpoint, stored = open_checkpoint(int8_folder), weights(int8_folder)
    again = quantise(checkpoint.tensor(NAME))
    assert torch.equal(again.values, stored[NAME])
    assert torch.equal(again.scale, stored[scale_name(NAME)])
