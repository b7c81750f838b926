"""Bad input: one line, exit code 2, nothing lost."""

from __future__ import annotations

import json
import resource
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

Q = "encoder.block.0.layer.0.SelfAttention.q.weight"
READERS = (("spectrum",), ("compress", "--eps", "0.1", "--out", "out"))
ALL_READERS = (
    *READERS,
    ("flow",),
    ("embed",),
    ("eval",),
    ("forecast", "--input", "monthly.csv", "--horizon", "2"),
)


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, monthly_csv: Path) -> None:
    monkeypatch.chdir(tmp_path)


def verb(words: tuple[str, ...], model: object) -> tuple[str, ...]:
    return (words[0], str(model), *words[1:])


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if "partial" in path.name or path.name.endswith(".old")]


@pytest.mark.parametrize("words", ALL_READERS, ids=lambda words: words[0])
def test_no_such_model(refused: Callable[..., str], words: tuple[str, ...]) -> None:
    line = refused(*verb(words, "nowhere"))
    assert "'nowhere'" in line
    assert not Path("out").exists()


def test_hub_unreachable(refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub

    def unreachable(*args: Any, **kwargs: Any) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", unreachable)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    line = refused("spectrum", "someone/some-model-that-nobody-has")
    assert "no route to host" in line
    assert "local folder" in line


@pytest.mark.parametrize("words", READERS, ids=lambda words: words[0])
def test_pickle_only(refused: Callable[..., str], chronos_t5_folder: Path, words: tuple[str, ...]) -> None:
    (chronos_t5_folder / "model.safetensors").rename(chronos_t5_folder / "pytorch_model.bin")
    line = refused(*verb(words, chronos_t5_folder))
    assert "pytorch_model.bin" in line
    assert "pickled" in line


@pytest.mark.parametrize("words", READERS, ids=lambda words: words[0])
@pytest.mark.parametrize("damage", ["truncated", "empty", "no header", "header claims more", "overlong header"])
def test_damaged_safetensors(
    refused: Callable[..., str], chronos_t5_folder: Path, words: tuple[str, ...], damage: str
) -> None:
    file = chronos_t5_folder / "model.safetensors"
    whole = file.read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    header = json.loads(whole[8 : 8 + length])
    header[Q]["data_offsets"][1] += 10**9
    longer = json.dumps(header).encode()
    file.write_bytes(
        {
            "truncated": whole[: len(whole) // 2],
            "empty": b"",
            "no header": b"not a safetensors file",
            "header claims more": struct.pack("<Q", len(longer)) + longer + whole[8 + length :],
            "overlong header": struct.pack("<Q", 10**15) + whole[8:],
        }[damage]
    )
    assert "model.safetensors" in refused(*verb(words, chronos_t5_folder))
    assert not Path("out").exists()
    assert leftovers(Path()) == []


@pytest.mark.parametrize("words", READERS, ids=lambda words: words[0])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers(
    refused: Callable[..., str],
    tmp_path: Path,
    tiny_config: Any,
    random_tensors: Any,
    write_checkpoint: Any,
    words: tuple[str, ...],
    value: float,
) -> None:
    config = tiny_config("chronos-t5")
    tensors = random_tensors(config)
    tensors[Q][1, 2] = value
    line = refused(*verb(words, write_checkpoint(tmp_path / "bad", config, tensors)))
    assert Q in line
    assert not Path("out").exists()


def test_zero_matrix_has_rank_zero_and_compresses(
    cli: Any, document: Any, tmp_path: Path, tiny_config: Any, random_tensors: Any, write_checkpoint: Any
) -> None:
    config = tiny_config("chronos-t5")
    tensors = random_tensors(config)
    tensors[Q] = torch.zeros_like(tensors[Q])
    folder = write_checkpoint(tmp_path / "zero", config, tensors)
    (site,) = [site for site in document("spectrum", folder)["sites"] if site["name"] == Q]
    assert set(site["eps_ranks"].values()) == {0}
    assert site["sigma_max"] == 0
    assert cli("spectrum", folder).exit_code == 0
    assert cli("compress", folder, "--eps", "0.1", "--out", "out").exit_code == 0
    (site,) = [site for site in document("spectrum", "out")["sites"] if site["name"] == Q]
    assert set(site["eps_ranks"].values()) == {0}


@pytest.mark.parametrize("value", ["-0.1", "1", "1.5", "nan", "inf", "small", ""])
def test_eps_outside_its_range(refused: Callable[..., str], chronos_t5_folder: Path, value: str) -> None:
    assert "eps" in refused("spectrum", chronos_t5_folder, f"--eps={value}")
    assert "eps" in refused("compress", chronos_t5_folder, f"--eps={value}", "--out", "out")
    assert "eps" in refused("flow", chronos_t5_folder, f"--eps={value}", "--n", "1", "--length", "8")
    assert not Path("out").exists()


@pytest.mark.parametrize("value", ["0", "-1", "1.2", "nan", "half"])
def test_ratio_outside_its_range(refused: Callable[..., str], chronos_t5_folder: Path, value: str) -> None:
    assert "ratio" in refused("compress", chronos_t5_folder, f"--ratio={value}", "--out", "out")


def test_compress_needs_one_size(refused: Callable[..., str], chronos_t5_folder: Path) -> None:
    line = refused("compress", chronos_t5_folder, "--out", "out")
    for option in ("--eps", "--ratio", "--parameters", "--bytes", "--cache-bytes", "--max-loss", "--storage int8"):
        assert option in line
    both = ("--eps", "0.1", "--ratio", "0.5")
    assert "one size, not eps and ratio" in refused("compress", chronos_t5_folder, *both, "--out", "out")


def test_unknown_words_are_refused_with_the_known_ones(refused: Callable[..., str], chronos_t5_folder: Path) -> None:
    assert "attention" in refused("spectrum", chronos_t5_folder, "--sites", "q,atention")
    assert "sine" in refused("flow", chronos_t5_folder, "--signal", "sin")
    assert "cpu" in refused("flow", chronos_t5_folder, "--device", "gpu")
    assert "embedded" in refused("eval", "naive", "--suite", "embeded")
    assert "bundled-bolt" in refused("pretrain", "bundled-blot", "--out", "out")


@pytest.mark.parametrize("words", READERS, ids=lambda words: words[0])
def test_unknown_family_lists_the_known(
    refused: Callable[..., str], chronos_t5_folder: Path, words: tuple[str, ...]
) -> None:
    (chronos_t5_folder / "config.json").write_text(json.dumps({"model_type": "resnet"}))
    save_file({"stages.0.convolution.weight": torch.ones(2, 2)}, chronos_t5_folder / "model.safetensors")
    line = refused(*verb(words, chronos_t5_folder))
    assert all(name in line for name in ("chronos-t5", "chronos-bolt", "chronos-2", "t5"))


@pytest.mark.parametrize("words", READERS, ids=lambda words: words[0])
@pytest.mark.parametrize("change", [{"d_model": 32}, {"num_layers": 3}, {"num_heads": 4}])
def test_config_and_weights_that_disagree(
    refused: Callable[..., str], chronos_t5_folder: Path, words: tuple[str, ...], change: dict[str, int]
) -> None:
    file = chronos_t5_folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    assert "config.json and weights disagree" in refused(*verb(words, chronos_t5_folder))
    assert not Path("out").exists()


@pytest.mark.parametrize("content", ["", "{", "[1]", "null"])
def test_broken_config(refused: Callable[..., str], chronos_t5_folder: Path, content: str) -> None:
    (chronos_t5_folder / "config.json").write_text(content)
    assert "config.json" in refused("spectrum", chronos_t5_folder)


def test_existing_folder_is_refused_then_replaced(
    refused: Callable[..., str], cli: Any, chronos_t5_folder: Path
) -> None:
    out = Path("out")
    out.mkdir()
    (out / "precious").write_text("mine")
    line = refused("compress", chronos_t5_folder, "--eps", "0.5", "--out", out)
    assert "--force" in line
    assert "holds 'precious' and no checkpoint" in refused(
        "compress", chronos_t5_folder, "--eps", "0.5", "--out", out, "--force"
    )
    assert (out / "precious").read_text() == "mine"
    (out / "precious").unlink()
    for eps in ("0.5", "0.9"):
        result = cli("compress", chronos_t5_folder, "--eps", eps, "--out", out, "--force")
        assert result.exit_code == 0, result.stderr
        assert json.loads((out / "compress.json").read_text())["eps"] == float(eps)
    assert leftovers(Path()) == []


@pytest.mark.parametrize(
    "words",
    [
        ("spectrum",),
        ("flow", "--n", "2", "--length", "16"),
        ("embed", "--n", "2", "--length", "16"),
        ("eval", "--tasks", "nile", "--max-series", "1", "--num-samples", "2"),
        ("forecast", "--input", "monthly.csv", "--horizon", "2", "--num-samples", "2"),
    ],
    ids=lambda words: words[0],
)
def test_existing_file_is_refused_then_replaced(
    refused: Callable[..., str], cli: Any, forecaster_folder: Path, words: tuple[str, ...]
) -> None:
    out = Path("result.csv")
    out.write_text("mine")
    assert "--force" in refused(*verb(words, forecaster_folder), "--out", out)
    assert out.read_text() == "mine"
    result = cli(*verb(words, forecaster_folder), "--out", out, "--force")
    assert result.exit_code == 0, result.stderr
    assert out.read_text().count("\n") > 1
    assert leftovers(Path()) == []


def test_output_format_and_place(refused: Callable[..., str], chronos_t5_folder: Path, tmp_path: Path) -> None:
    assert ".parquet" in refused("spectrum", chronos_t5_folder, "--out", "result.xlsx")
    assert "folder" in refused("spectrum", chronos_t5_folder, "--out", tmp_path)
    Path("file").write_text("")
    assert "file" in refused("spectrum", chronos_t5_folder, "--figures", "file")
    assert "cannot write beside file/below.csv" in refused("spectrum", chronos_t5_folder, "--out", "file/below.csv")
    assert "beside file/below:" in refused("compress", chronos_t5_folder, "--eps", "0.1", "--out", "file/below")


@contextmanager
def file_size_limit(count: int) -> Iterator[None]:
    """Let no file grow beyond ``count`` bytes: writes fail half way, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_disk_full_keeps_the_old_folder(cli: Any, chronos_t5_folder: Path) -> None:
    assert cli("compress", chronos_t5_folder, "--eps", "0.1", "--out", "out").exit_code == 0
    before = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    with file_size_limit(8192):
        result = cli("compress", chronos_t5_folder, "--eps", "0.5", "--out", "out", "--force")
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1
    assert "cannot write" in result.stderr
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before
    assert leftovers(Path()) == []


def test_disk_full_keeps_the_old_file(cli: Any, chronos_t5_folder: Path) -> None:
    Path("result.json").write_text("mine")
    with file_size_limit(100):
        result = cli("spectrum", chronos_t5_folder, "--out", "result.json", "--force")
    assert result.exit_code == 2, result.output
    assert Path("result.json").read_text() == "mine"
    assert leftovers(Path()) == []


def write_series(name: str, rows: list[str], header: str = "date,a") -> Path:
    file = Path(name)
    file.write_text("\n".join([header, *rows]) + "\n")
    return file


def months(values: list[str]) -> list[str]:
    return [f"{2020 + n // 12}-{n % 12 + 1:02d}-01,{value}" for n, value in enumerate(values)]


BAD_SERIES = {
    "empty file": ("", None),
    "all NaN": ("date,a\n2020-01-01,\n2020-02-01,\n2020-03-01,\n", None),
    "no such file": (None, "series.csv"),
}


@pytest.mark.parametrize("case", BAD_SERIES)
def test_series_that_cannot_be_used(refused: Callable[..., str], chronos_t5_folder: Path, case: str) -> None:
    text, part = BAD_SERIES[case]
    if text is not None:
        Path("series.csv").write_text(text)
    forecasts = (
        ("forecast", chronos_t5_folder, "--input", "series.csv", "--horizon", 2),
        ("forecast", "naive", "--input", "series.csv", "--horizon", 2),
    )
    for words in (
        *(forecasts if case != "all NaN" else ()),
        ("flow", chronos_t5_folder, "--signal", "series.csv", "--n", 1, "--length", 2),
        ("embed", chronos_t5_folder, "--signal", "series.csv", "--n", 1, "--length", 2),
    ):
        line = refused(*words)
        assert "series.csv" in line
        assert part is None or part in line


def test_a_series_without_a_number_gets_a_warning_and_a_forecast_of_none(cli: Any) -> None:
    Path("series.csv").write_text(BAD_SERIES["all NaN"][0] or "")
    result = cli("forecast", "naive", "--input", "series.csv", "--horizon", 2, "--json")
    assert result.exit_code == 0
    assert "warning: 1 series without values" in result.stderr
    assert json.loads(result.stdout)["series"][0]["mean"] == [None, None]


def test_too_short_series(refused: Callable[..., str], chronos_t5_folder: Path) -> None:
    write_series("series.csv", months(["1", "2", "3"]))
    Path("suite.yaml").write_text("- {name: series, file: series.csv, prediction_length: 4, offset: -4}\n")
    assert "has 3 values, but 1 window of 4 steps" in refused("eval", "naive", "--suite", "suite.yaml", "--data", ".")
    line = refused("flow", chronos_t5_folder, "--signal", "series.csv", "--length", 16)
    assert "too short" in line


@pytest.mark.parametrize("model", ["naive", "checkpoint"])
def test_constant_and_ragged_series_are_forecast(document: Any, forecaster_folder: Path, model: str) -> None:
    name = forecaster_folder if model == "checkpoint" else model
    write_series("constant.csv", months(["5"] * 12))
    (series,) = document("forecast", name, "--input", "constant.csv", "--horizon", 3, "--num-samples", 2)["series"]
    assert len(series["mean"]) == 3
    rows = ["a,2020-01-01,1", "a,2020-02-01,2", "a,2020-03-01,4", "b,2020-01-01,7", "b,2020-02-01,8"]
    write_series("ragged.csv", rows, header="item_id,date,target")
    both = document("forecast", name, "--input", "ragged.csv", "--horizon", 2, "--num-samples", 2)["series"]
    assert [one["item_id"] for one in both] == ["a", "b"]
    assert [one["timestamps"][0][:7] for one in both] == ["2020-04", "2020-03"]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--horizon", "0"), "--horizon"),
        (("--horizon", "2", "--quantiles", "1.5"), "quantiles [1.5] are not usable"),
    ],
)
def test_forecast_options(refused: Callable[..., str], words: tuple[str, ...], part: str) -> None:
    assert part in refused("forecast", "naive", "--input", "monthly.csv", *words)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("naive", ("--runtime", "fast")),
        ("naive", ("--dtype", "bfloat16")),
        ("seasonal-naive", ("--revision", "main")),
        ("bundled-bolt", ("--season-length", "5")),
        ("naive", ("--season-length", "5")),
    ],
)
def test_forecast_refuses_options_that_the_model_does_not_look_at(
    refused: Callable[..., str], model: str, words: tuple[str, ...]
) -> None:
    text = refused("forecast", model, "--input", "monthly.csv", "--horizon", 2, *words)
    assert f"{words[0]} has no effect: {model} " in text


def test_text_model_does_not_forecast(refused: Callable[..., str], t5_folder: Path) -> None:
    assert "cannot forecast with" in refused("forecast", t5_folder, "--input", "monthly.csv", "--horizon", 2)
    assert "cannot forecast with" in refused("eval", t5_folder, "--tasks", "nile")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--suite", "missing.yaml"), "suite file missing.yaml does not exist"),
        (("--suite", "bad.yaml"), "bad.yaml is not a suite"),
        (("--tasks", "nothing"), "tasks 'nothing' is not known: choose from co2"),
        (("--tasks", ""), "tasks is empty"),
        (("--suite", "chronos-zero-shot", "--data", "missing"), "data folder missing does not exist"),
    ],
)
def test_eval_options(refused: Callable[..., str], words: tuple[str, ...], part: str) -> None:
    Path("bad.yaml").write_text("{not: a suite}\n")
    assert part in refused("eval", "naive", *words)


def test_pretrain_options(refused: Callable[..., str]) -> None:
    Path("run.yaml").write_text("famly: chronos-t5\n")
    assert "family" in refused("pretrain", "run.yaml", "--out", "out")
    Path("done").mkdir()
    assert "--force" in refused("pretrain", "bundled", "--out", "done")
    assert not Path("out").exists()


def test_pretrain_keeps_the_snapshots_of_an_unfinished_run(refused: Callable[..., str]) -> None:
    from rankscope.train import read_config
    from rankscope.train.trainer import training_run
    from rankscope_cli.verbs.pretrain import find_config

    snapshot = Path("out.run/checkpoint-10")
    with training_run(read_config(find_config("bundled")), Path("out"), "fp32", 1).open(resume=False, force=False):
        snapshot.mkdir()
    assert "--resume" in refused("pretrain", "bundled", "--out", "out")
    assert snapshot.exists()


def test_options_about_series_are_refused_for_models_of_images(cli, refused):
    for verb in ("flow", "embed"):
        assert "--signal requires a model of series or text" in refused(verb, "bundled-vit", "--signal", "noise")
        assert "--length requires a model of series or text" in refused(verb, "bundled-vit", "--length", "64")
    assert cli("flow", "bundled-vit", "--n", "2").stdout.startswith("bundled-vit: 2 generated images\n")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("spectrum", ""), "MODEL"),
        (("eval", "bundled", ""), "MODEL"),
        (("compress", "", "--eps", "0.1", "--out", "x"), "MODEL"),
        (("spectrum", "-s", ""), "--sites"),
        (("eval", "--metrics", ""), "--metrics"),
        (("flow", "--text", ""), "--text"),
        (("spectrum", "--sites", ","), "--sites"),
        (("spectrum", "--sites", "q", "--sites", " "), "--sites"),
        (("spectrum", "--eps", ""), "--eps"),
    ],
)
def test_an_empty_value_is_not_the_default(refused: Any, words: tuple[str, ...], name: str) -> None:
    assert f"{name} is empty: give a value, or leave it out." in refused(*words)


@pytest.mark.parametrize(("words", "name"), [(("report", ""), "DIR"), (("compress", "--out", ""), "--out")])
def test_an_empty_value_that_is_required_is_named(refused: Any, words: tuple[str, ...], name: str) -> None:
    assert f"{name} is empty: give a value." in refused(*words)
