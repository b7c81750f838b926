"""Whole folders: what is written, that it loads, forecasts the same, and that a broken run leaves nothing."""

import errno
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from rankscope import load_pipeline, open_checkpoint
from rankscope.checkpoints import Checkpoint
from rankscope.compress import Budget, CompressOptions, CompressReport, compress, methods, write
from rankscope.engine.device import computing_dtype
from rankscope.errors import CheckpointError, FamilyError, OptionError, OutputError
from rankscope.families import Site
from rankscope.io import codec
from rankscope.numerics import FactoredMatrix

FORECASTABLE = ("chronos-t5", "chronos-bolt", "chronos-2")
ALL = (*FORECASTABLE, "t5", "t5-gated")
LINEAR = ("q", "k", "v", "o", "wi", "wo", "hidden_layer", "output_layer", "residual_layer")


@pytest.fixture
def make(tmp_path: Path, write_checkpoint: Any, tiny_config: Any, random_tensors: Any) -> Callable[..., Path]:
    """``make(kind)``: a random checkpoint whose matrices have quickly falling spectra."""

    def build(kind: str, dtype: torch.dtype = torch.float32, shards: int = 1, **changes: Any) -> Path:
        # Equal depths: transformers 5 sizes the decoder's cache by the encoder's depth.
        config = tiny_config(kind, num_decoder_layers=2, **changes)
        tensors = random_tensors(config)
        for name, tensor in tensors.items():
            if tensor.ndim == 2 and name.split(".")[-2] in LINEAR:
                u, s, vh = torch.linalg.svd(tensor, full_matrices=False)
                tensors[name] = u @ torch.diag(s[0] * 0.5 ** torch.arange(len(s))) @ vh
        return write_checkpoint(tmp_path / kind, config, tensors, dtype=dtype, shards=shards)

    return build


def forecast(folder: Path) -> torch.Tensor:
    pipeline = load_pipeline(folder)
    torch.manual_seed(7)
    made = pipeline.predict([torch.sin(torch.arange(24.0)), torch.arange(9.0)], prediction_length=6)
    return torch.stack(list(made))


def logits(folder: Path) -> torch.Tensor:
    model = open_checkpoint(folder).module()
    tokens = torch.arange(2, 22).reshape(2, 10)
    with torch.no_grad():
        return model(input_ids=tokens, decoder_input_ids=tokens[:, :4]).logits


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("options", [{"eps": 0.0}, {"attention_ratio": 1.0}])
def test_nothing_asked_nothing_changed(
    kind: str, options: dict[str, float], make: Callable[..., Path], tmp_path: Path
) -> None:
    source = make(kind)
    report = compress(source, CompressOptions(**options), out=tmp_path / "same")
    assert report.selected_ratio == 1.0
    assert all(site.layout == "dense" and site.note for site in report.sites)
    answer = forecast if kind in FORECASTABLE else logits
    assert torch.equal(answer(source), answer(tmp_path / "same"))


@pytest.mark.parametrize("kind", ALL)
def test_compressed_folder_is_smaller_and_near(kind: str, make: Callable[..., Path], tmp_path: Path) -> None:
    source, out = make(kind), tmp_path / "small"
    report = compress(source, CompressOptions(eps=0.1, sites=["all"]), out=out)
    before, after = open_checkpoint(source), open_checkpoint(out)
    assert after.family.name == before.family.name
    assert after.parameters == report.parameters["after"] < report.parameters["before"] == before.parameters
    assert after.bytes == report.bytes["after"] < report.bytes["before"] == before.bytes
    factored = [site for site in report.sites if site.layout == "factored"]
    assert factored
    sites = {site.name: site for site in before.sites(["all"])}
    for entry in report.sites:
        stored, original = after.matrix(sites[entry.name]), before.matrix(sites[entry.name])
        assert isinstance(original, torch.Tensor)
        assert isinstance(stored, FactoredMatrix) == (entry.layout == "factored")
        if isinstance(stored, FactoredMatrix):
            assert stored.rank == entry.rank == entry.eps_rank
            norm = float(torch.linalg.matrix_norm(original, 2))
            error = float(torch.linalg.matrix_norm(original - stored.dense(), 2))
            assert error <= 0.1 * norm * (1 + 1e-5)
            assert error == pytest.approx(entry.spectral_error, rel=1e-3, abs=1e-5 * norm)
            assert entry.relative_error <= 0.1
        else:
            assert torch.equal(stored, original)
    assert (forecast(out) if kind in FORECASTABLE else logits(out)).isfinite().all()


@pytest.mark.parametrize("kind", ["chronos-bolt", "chronos-2", "t5-gated"])
def test_answers_equal_those_of_the_products_written_back(
    kind: str, make: Callable[..., Path], tmp_path: Path, write_checkpoint: Any
) -> None:
    """The stock class on a dense checkpoint of the products answers what the factored folder answers."""
    source = open_checkpoint(make(kind))
    compress(source, CompressOptions(eps=0.2, sites=["all"]), out=tmp_path / "small")
    small = open_checkpoint(tmp_path / "small")
    tensors = {name: source.tensor(name) for name in source.index}
    for site in small.sites(["all"]):
        stored = small.matrix(site)
        tensors[site.name] = stored.dense() if isinstance(stored, FactoredMatrix) else stored
    dense = write_checkpoint(tmp_path / "dense", source.config, tensors)
    answer = forecast if kind in FORECASTABLE else logits
    torch.testing.assert_close(answer(tmp_path / "small"), answer(dense), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(answer(dense), answer(source.folder), rtol=1e-3)


@pytest.mark.parametrize(
    "options",
    [
        CompressOptions(eps=0.1, sites="all"),
        CompressOptions(attention_ratio=0.5, method="whitened", calibration="kernelsynth:4"),
        CompressOptions(attention_ratio=0.5, method="joint", calibration="kernelsynth:4", probe="kernelsynth:4"),
    ],
    ids=["eps", "energy", "sensitivity"],
)
def test_a_matrix_is_read_once_to_be_measured_and_once_to_be_cut(
    options: CompressOptions, make: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, reads = Checkpoint.matrix, Counter[str]()

    def counting(source: Checkpoint, site: Site) -> torch.Tensor | FactoredMatrix:
        reads[site.name] += 1
        return whole(source, site)

    monkeypatch.setattr(Checkpoint, "matrix", counting)
    report = compress(make("chronos-t5"), options, out=tmp_path / "small")
    cut = {site.name for site in report.sites if site.parameters_after < site.parameters_before}
    assert cut
    assert reads.keys() == {site.name for site in report.sites}
    assert all(count == 2 if name in cut else count <= 2 for name, count in reads.items())


@pytest.mark.parametrize("target", [0.3, 0.5, 0.8])
def test_ratio_is_kept_and_counts_what_is_stored(target: float, make: Callable[..., Path], tmp_path: Path) -> None:
    out = tmp_path / "small"
    report = compress(make("chronos-bolt"), CompressOptions(attention_ratio=target), out=out)
    stored = 0
    with safe_open(out / "model.safetensors", "pt") as file:
        for site in open_checkpoint(out).sites():
            names = [site.name, f"{site.module}.up.weight", f"{site.module}.down.weight"]
            stored += sum(file.get_tensor(name).numel() for name in names if name in file.keys())  # noqa: SIM118
    assert stored == report.selected_parameters["after"]
    assert stored / report.selected_parameters["before"] == report.selected_ratio <= target
    assert report.selected_ratio > target - 0.15
    assert report.asked == {"attention-ratio": target}


def test_smaller_targets_give_smaller_files(make: Callable[..., Path], tmp_path: Path) -> None:
    source = make("chronos-t5")
    sizes, widths = [], []
    for i, target in enumerate((1.0, 0.8, 0.6, 0.4)):
        report = compress(source, CompressOptions(attention_ratio=target), out=tmp_path / str(i))
        sizes.append(report.bytes["after"])
        widths.append(report.eps)
    assert sizes == sorted(sizes, reverse=True)
    assert widths == sorted(widths)
    assert sizes[0] > sizes[-1]


def test_report_has_the_published_shape(make: Callable[..., Path], tmp_path: Path) -> None:
    report = compress(make("chronos-t5"), CompressOptions(eps=0.1, sites="q,decoder"), out=tmp_path / "small")
    shape = codec.plain(report)
    assert shape["schema"] == "rankscope/compress@2"
    assert json.loads(json.dumps(shape)) == json.loads((tmp_path / "small" / "compress.json").read_text())
    assert {"model", "family", "method", "eps", "ratio", "parameters", "bytes", "seconds"} <= shape.keys()
    assert [site["role"] for site in shape["sites"]] == ["self.q", "cross.q"] * 2
    assert {"name", "layout", "rank", "shape", "spectral_error"} <= shape["sites"][0].keys()
    assert list(report.to_frame()["rank"]) == [site.rank for site in report.sites]
    config = json.loads((tmp_path / "small" / "config.json").read_text())
    assert config["rankscope"]["method"] == "svd"
    assert config["rankscope"]["family"] == "chronos-t5"


def test_generation_config_and_tokenizer_travel(make: Callable[..., Path], tmp_path: Path) -> None:
    source = make("chronos-t5")
    (source / "generation_config.json").write_text('{"max_length": 77, "pad_token_id": 0}')
    (source / "tokenizer.json").write_text("{}")
    (source / "README.md").write_text("the source's card says nothing true about the copy")
    compress(source, CompressOptions(eps=0.1), out=tmp_path / "small")
    assert (tmp_path / "small" / "generation_config.json").read_text() == '{"max_length": 77, "pad_token_id": 0}'
    assert (tmp_path / "small" / "tokenizer.json").exists()
    assert "says nothing true" not in (tmp_path / "small" / "README.md").read_text()
    assert load_pipeline(tmp_path / "small").inner_model.generation_config.max_length == 77


@pytest.mark.parametrize("kind", ["chronos-t5", "chronos-bolt"])
def test_compressing_a_compressed_folder(kind: str, make: Callable[..., Path], tmp_path: Path) -> None:
    source = make(kind)
    first = compress(source, CompressOptions(eps=0.1), out=tmp_path / "a")
    again = compress(tmp_path / "a", CompressOptions(eps=0.1), out=tmp_path / "b")
    assert again.parameters["after"] == first.parameters["after"]
    assert torch.equal(forecast(tmp_path / "a"), forecast(tmp_path / "b"))
    twice = compress(tmp_path / "a", CompressOptions(eps=0.3), out=tmp_path / "c")
    once = compress(source, CompressOptions(eps=0.3), out=tmp_path / "d")
    assert twice.parameters["after"] == once.parameters["after"]
    assert twice.parameters["before"] == first.parameters["after"]
    for site in open_checkpoint(tmp_path / "d").sites():
        left, right = (open_checkpoint(tmp_path / name).matrix(site) for name in "cd")
        dense = [m.dense() if isinstance(m, FactoredMatrix) else m for m in (left, right)]
        torch.testing.assert_close(dense[0], dense[1], rtol=1e-4, atol=1e-5)


def test_zero_matrix(make: Callable[..., Path], tmp_path: Path, write_checkpoint: Any) -> None:
    source = open_checkpoint(make("chronos-t5"))
    site = source.sites()[0]
    tensors = {name: source.tensor(name) for name in source.index}
    tensors[site.name] = torch.zeros_like(tensors[site.name])
    folder = write_checkpoint(tmp_path / "zero", source.config, tensors)
    report = compress(folder, CompressOptions(eps=0.0), out=tmp_path / "small")
    entry = report.sites[0]
    assert (entry.rank, entry.eps_rank, entry.layout) == (1, 0, "factored")
    assert entry.note == "zero matrix, stored with rank 1"
    assert torch.equal(forecast(folder), forecast(tmp_path / "small"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_number_formats_are_kept(dtype: torch.dtype, make: Callable[..., Path], tmp_path: Path) -> None:
    compress(make("chronos-bolt", dtype=dtype), CompressOptions(eps=0.1), out=tmp_path / "small")
    assert {info.dtype for info in open_checkpoint(tmp_path / "small").index.values()} == {dtype}


def test_dtype_casts_every_tensor(make: Callable[..., Path], tmp_path: Path) -> None:
    source = make("chronos-t5")
    compress(source, CompressOptions(eps=0.1, dtype="bfloat16"), out=tmp_path / "small")
    assert {info.dtype for info in open_checkpoint(tmp_path / "small").index.values()} == {torch.bfloat16}
    assert load_pipeline(tmp_path / "small").inner_model.dtype == computing_dtype("cpu", torch.bfloat16)


def test_shards_are_read_and_written(
    make: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make("chronos-t5", shards=3)
    compress(source, CompressOptions(eps=0.1), out=tmp_path / "one")
    monkeypatch.setattr(write, "SHARD_BYTES", 4000)
    compress(source, CompressOptions(eps=0.1), out=tmp_path / "many")
    files = sorted(file.name for file in (tmp_path / "many").glob("*.safetensors"))
    assert len(files) > 2
    assert files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    one, many = open_checkpoint(tmp_path / "one"), open_checkpoint(tmp_path / "many")
    assert all(torch.equal(one.tensor(name), many.tensor(name)) for name in one.index)
    assert one.index.keys() == many.index.keys()
    assert torch.equal(forecast(tmp_path / "one"), forecast(tmp_path / "many"))


def test_progress_counts_to_the_end(make: Callable[..., Path], tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    compress(make("chronos-t5"), CompressOptions(eps=0.1), out=tmp_path / "s", progress=lambda *step: seen.append(step))
    for what in ("singular values", "factors"):
        steps = [(done, total) for done, total, name in seen if name == what]
        assert [done for done, _ in steps] == list(range(1, steps[0][1] + 1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {},
            r"--ratio .*--parameters, --bytes or --cache-bytes\), .*--eps .*-ratio, .*--max-loss\), .*--storage int8",
        ),
        ({"eps": 0.1, "attention_ratio": 0.5}, "give one size, not eps and attention ratio"),
        (
            {"attention_ratio": 0.5, "budget": Budget("attention-ratio", 0.5)},
            "not attention ratio and a budget of attention-ratio",
        ),
        ({"eps": 0.1, "budget": Budget("bytes", 9)}, "give one size, not eps and a budget of bytes"),
        ({"eps": 1.0}, r"eps must lie in \[0, 1\)"),
        ({"attention_ratio": 0.0}, r"ratio must lie in \(0, 1\]"),
        ({"eps": 0.1, "method": "svdd"}, "did you mean 'svd'"),
        ({"eps": 0.1, "sites": ["atention"]}, "did you mean 'attention'"),
        ({"eps": 0.1, "sites": ["embedding"]}, "only the embedding table"),
        ({"eps": 0.1, "dtype": "int8"}, "dtype 'int8' is not known"),
        ({"attention_ratio": 0.001}, "out of reach"),
        ({"ratio": "half"}, "ratio must be a number"),
        ({"eps": 0.1, "multiple": 1.5}, "multiple 1.5 is not usable: give a whole number"),
        ({"eps": 0.1, "seed": None}, "seed None is not usable"),
        ({"eps": 0.1, "workers": 0}, "workers 0 is not usable"),
        ({"eps": 0.1, "refine": "no"}, "refine 'no' is not known"),
        ({"budget": 0.3}, "budget must be a Budget, .* not 0.3"),
        (
            {"attention_ratio": 0.5, "method": "whitened", "calibration": [1.0]},
            "calibration must be .* not list",
        ),
    ],
)
@pytest.mark.usefixtures("untyped")
def test_bad_options_write_nothing(
    options: dict[str, Any], message: str, make: Callable[..., Path], tmp_path: Path
) -> None:
    source = make("chronos-t5")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(OptionError, match=message) as caught:
        compress(source, CompressOptions(**options), out=tmp_path / "small")
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.iterdir()) == before


def test_existing_out_is_refused_before_any_work(make: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    with pytest.raises(OutputError, match="exists already"):
        compress(tmp_path / "no such model", CompressOptions(eps=0.1), out=tmp_path / "small")
    report = compress(make("chronos-t5"), CompressOptions(eps=0.1), out=tmp_path / "small", force=True)
    assert isinstance(report, CompressReport)
    assert (tmp_path / "small" / "model.safetensors").is_file()


def test_force_may_replace_the_source_itself(make: Callable[..., Path], tmp_path: Path) -> None:
    source = make("chronos-t5")
    report = compress(source, CompressOptions(eps=0.1), out=source, force=True)
    assert open_checkpoint(source).parameters == report.parameters["after"] < report.parameters["before"]


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
@pytest.mark.parametrize("old", [False, True])
def test_a_broken_run_leaves_the_old_folder_or_nothing(
    failure: BaseException, old: bool, make: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = make("chronos-t5"), tmp_path / "small"
    if old:
        out.mkdir()
        (out / "config.json").write_text("kept")
        (out / "model.safetensors").write_text("kept")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    calls = 0
    whole = methods.truncated_svd

    def breaking(*args: Any) -> FactoredMatrix:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise failure
        return whole(*args)

    monkeypatch.setattr(methods, "truncated_svd", breaking)
    with pytest.raises(KeyboardInterrupt if isinstance(failure, KeyboardInterrupt) else OutputError):
        compress(source, CompressOptions(eps=0.1), out=out, force=old)
    assert calls >= 3
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_nan_is_named_and_nothing_is_written(make: Callable[..., Path], tmp_path: Path, write_checkpoint: Any) -> None:
    source = open_checkpoint(make("chronos-t5"))
    tensors = {name: source.tensor(name) for name in source.index}
    name = "decoder.final_layer_norm.weight"
    tensors[name][0] = torch.nan
    folder = write_checkpoint(tmp_path / "nan", source.config, tensors)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(CheckpointError, match=name):
        compress(folder, CompressOptions(eps=0.1), out=tmp_path / "small")
    assert sorted(tmp_path.iterdir()) == before


def test_encoder_only_t5_is_refused(tmp_path: Path, write_checkpoint: Any, tiny_config: Any) -> None:
    config = tiny_config("t5", architectures=["T5EncoderModel"])
    with pytest.raises(FamilyError, match="no decoder"):
        compress(write_checkpoint(tmp_path / "enc", config), CompressOptions(eps=0.1), out=tmp_path / "small")
