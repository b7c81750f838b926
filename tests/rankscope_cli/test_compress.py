"""``rankscope compress`` with methods that look at series: what it writes, warns of and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from safetensors.torch import load_file, save_file

from rankscope import open_checkpoint
from rankscope.compress import read_recipe
from rankscope.compress.calibration import calibrate, calibration_set
from rankscope.compress.to_loss import Measured
from rankscope_eval import Scorer

SET = ("--calibration", "kernelsynth:16")


@pytest.fixture
def moments(bolt_folder: Path, tmp_path: Path) -> Path:
    """Saved moments of the toy Bolt."""
    file = tmp_path / "moments.safetensors"
    calibrate(open_checkpoint(bolt_folder), calibration_set("kernelsynth:8", context=32, horizon=8), file=file)
    return file


@pytest.mark.slow
def test_joint_heads_from_named_series(document: Callable[..., Any], bolt_folder: Path, tmp_path: Path) -> None:
    how = ("--method", "joint", "--attention-ratio", "0.6", *SET)
    result = document("compress", bolt_folder, *how, "--out", tmp_path / "small")
    assert (result["method"], result["allocation"], result["calibration"]) == ("joint", "sensitivity", "kernelsynth:16")
    assert {site["layout"] for site in result["sites"]} == {"head-width"}
    assert all(len(site["widths"]) == 2 for site in result["sites"])
    assert result["selected_ratio"] <= 0.6
    assert result == json.loads((tmp_path / "small" / "compress.json").read_text())
    again = document("compress", bolt_folder, *how, "--out", tmp_path / "again")
    assert again["sites"] == result["sites"]


def test_saved_moments_serve_every_method(
    document: Callable[..., Any], bolt_folder: Path, moments: Path, tmp_path: Path
) -> None:
    for method in ("whitened", "joint", "theorem3", "asvd"):
        how = (
            "--method",
            method,
            "--calibration",
            moments,
            "--attention-ratio",
            "0.7",
            "--allocation",
            "uniform-ratio",
        )
        result = document("compress", bolt_folder, *how, "--out", tmp_path / method)
        assert (result["calibration"], result["allocation"]) == ("kernelsynth:8", "uniform-ratio")
        assert open_checkpoint(tmp_path / method).parameters == result["parameters"]["after"]


@pytest.mark.parametrize(("option", "limit"), [("--parameters", 10_500), ("--bytes", 42_000), ("--cache-bytes", 1_500)])
def test_budgets(
    option: str, limit: int, document: Callable[..., Any], bolt_folder: Path, moments: Path, tmp_path: Path
) -> None:
    how = ("--method", "joint", "--sites", "attention", "--calibration", moments, option, limit)
    result = document("compress", bolt_folder, *how, "--out", tmp_path / "small")
    assert "ratio" not in result["asked"]
    if option == "--parameters":
        assert limit - 32 < result["parameters"]["after"] <= limit
    elif option == "--bytes":
        assert limit - 128 < result["bytes"]["after"] <= limit
    else:
        cached = [site for site in result["sites"] if site["stack"] == "decoder" and site["role"][-1] in "kv"]
        tokens = {"self": 1, "cross": 9}
        used = 4 * sum(site["rank"] * tokens[site["role"].partition(".")[0]] for site in cached)
        assert limit - 4 * 9 < used <= limit


@pytest.mark.slow
def test_storage_alone_cuts_nothing_and_every_verb_reads_it(
    cli: Callable[..., Any], document: Callable[..., Any], bolt_folder: Path, monthly_csv: Path, tmp_path: Path
) -> None:
    small = tmp_path / "int8"
    result = document("compress", bolt_folder, "--storage", "int8", "--out", small)
    assert (result["storage"], result["ratio"]) == ("int8", 1.0)
    assert result["bytes"]["after"] < 0.6 * result["bytes"]["before"]
    shown = cli("compress", bolt_folder, "--storage", "int8", "--out", tmp_path / "shown")
    assert "weights on disk, int8" in shown.stdout
    assert document("spectrum", small)["sites"]
    assert document("flow", small, "--n", "4", "--length", "16")["layers"]
    assert document("embed", small, "--n", "4", "--length", "16")["rows"]
    assert document("forecast", small, "--input", monthly_csv, "--horizon", "4")["horizon"] == 4
    assert document("eval", small, "--baseline", bolt_folder, "--tasks", "nile")["summary"]
    again = document("compress", small, "--attention-ratio", "0.6", "--out", tmp_path / "again")
    assert (again["storage"], again["bytes"]["before"]) == ("int8", result["bytes"]["after"])


def test_storage_in_a_budget_of_bytes(
    document: Callable[..., Any], bolt_folder: Path, moments: Path, tmp_path: Path
) -> None:
    how = ("--sites", "attention", "--calibration", moments, "--bytes", 13_500, "--storage", "int8")
    result = document("compress", bolt_folder, *how, "--out", tmp_path / "small")
    assert 13_500 - 64 < result["bytes"]["after"] <= 13_500
    assert result["bytes"]["after"] == open_checkpoint(tmp_path / "small").bytes


def test_nan_cannot_be_stored(refused: Callable[..., str], bolt_folder: Path, tmp_path: Path) -> None:
    tensors = load_file(bolt_folder / "model.safetensors")
    tensors["input_patch_embedding.hidden_layer.weight"][0, 0] = float("nan")
    save_file(tensors, bolt_folder / "model.safetensors", metadata={"format": "pt"})
    line = refused("compress", bolt_folder, "--storage", "int8", "--out", tmp_path / "small")
    assert "input_patch_embedding.hidden_layer.weight holds NaN or Inf" in line
    assert not (tmp_path / "small").exists()


def test_too_few_series_are_said_on_stderr(cli: Callable[..., Any], bolt_folder: Path, tmp_path: Path) -> None:
    how = ("--method", "whitened", "--attention-ratio", "0.5", "--calibration", "kernelsynth:1")
    result = cli("compress", bolt_folder, *how, "--out", tmp_path / "small")
    assert result.exit_code == 0
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("warning: ")]
    assert line.startswith("warning: calibration set kernelsynth:1 shows ")
    assert "warning" not in result.stdout
    assert " of all parameters. To evaluate" in result.stdout


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Three data sets that need no file: floods, carbon dioxide and an ocean's warmth, one series each."""
    file = tmp_path / "three.yaml"
    common = "prediction_length: 8, season_length: 1, offset: -16"
    file.write_text("".join(f"- {{name: {one}, embedded: {one}, {common}}}\n" for one in ("nile", "co2", "elnino")))
    return file


@pytest.mark.slow
def test_a_loss_in_place_of_a_size(
    cli: Callable[..., Any], document: Callable[..., Any], bolt_folder: Path, suite: Path, tmp_path: Path
) -> None:
    """So much is allowed that the least size holds; score and bound are those that eval measures."""
    how = ("--max-loss", "1", "--suite", suite, "--allocation", "energy", "--calibration", "mixture:16")
    result = cli("compress", bolt_folder, *how, "--out", tmp_path / "small")
    assert "warning: the size is chosen on 3 sources of data: below 10 the bound of the loss is rough." in result.stderr
    report = json.loads((tmp_path / "small" / "compress.json").read_text())
    search = report["search"]
    assert (search["measure"], search["max_loss"]) == (f"relative WQL on {suite}", 1.0)
    (step,) = search["steps"]
    assert (step["ratio"], step["score"], step["holds"]) == (report["ratio"], search["score"], True)
    measured = document("eval", tmp_path / "small", "--baseline", bolt_folder, "--suite", suite)["summary"][-1]
    assert measured["relative_WQL"] == pytest.approx(search["score"], rel=1e-6)
    assert measured["WQL_verdict"]["interval"][1] == pytest.approx(step["upper"], rel=1e-6)
    assert 1.0 != step["score"] < step["upper"]


@pytest.mark.parametrize(
    ("kept", "more", "words"),
    [(1, "", "series of one data set"), (2, "", "sources of data"), (3, ", source: weather", "sources of data")],
)
def test_a_loss_without_a_bound_chooses_nothing(
    refused: Callable[..., str], bolt_folder: Path, suite: Path, tmp_path: Path, kept: int, more: str, words: str
) -> None:
    lines = suite.read_text().replace("}", f"{more}}}").splitlines()[:kept]
    suite.write_text("\n".join(lines))
    line = refused("compress", bolt_folder, "--max-loss", "1", "--suite", suite, "--out", tmp_path / "small")
    assert f"--max-loss needs at least 3 {words} for a bound of the loss" in line
    assert not (tmp_path / "small").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--eps", "0.3", "--calibration", "nofile.csv"), "--calibration has no effect with method svd"),
        (("--attention-ratio", "0.5", "--probe", "mixture:4"), "--probe has no effect with method svd"),
        (("--storage", "int8", "--decoder", "sampled"), "--decoder has no effect with --storage or --dtype alone"),
    ],
)
def test_series_that_nobody_looks_at_are_refused(
    refused: Callable[..., str], bolt_folder: Path, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    assert said in refused("compress", bolt_folder, *words, "--out", tmp_path / "small")
    assert not (tmp_path / "small").exists()


def test_number_formats_alone_are_said_to_be_that(cli: Callable[..., Any], bolt_folder: Path, tmp_path: Path) -> None:
    result = cli("compress", bolt_folder, "--storage", "int8", "--out", tmp_path / "int8")
    assert result.exit_code == 0, result.stderr
    assert "other number formats" in result.stdout
    assert "selected matrices" not in result.stdout
    assert "Stored in other number formats; nothing was cut." in (tmp_path / "int8" / "README.md").read_text()
    page = cli("report", tmp_path / "int8", "--out", tmp_path / "page.html")
    assert page.exit_code == 0, page.stderr
    text = (tmp_path / "page.html").read_text()
    assert "bytes of weights, by number formats alone" in text
    assert text.count("other number formats, int8<") == 2  # of the models and of their sizes
    assert "svd" not in text
    assert "All 0 matrices" not in text


@pytest.mark.slow
def test_the_search_is_lines_and_shown(
    cli: Callable[..., Any], bolt_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a score that is known: one per cent worse for every per cent of parameters that is gone, and its bound."""
    whole = open_checkpoint(bolt_folder).parameters
    asked: dict[str, Any] = {}

    def known(scorer: Scorer, folder: Path) -> Measured:
        asked.update(vars(scorer))
        upper = 2 - open_checkpoint(folder).parameters / whole
        return Measured(upper - 0.01, upper)

    monkeypatch.setattr("rankscope_eval.Scorer.score_baseline", lambda *_: None)
    monkeypatch.setattr("rankscope_cli.loss_bound._bounded", known)
    how = ("--max-loss", "0.1", "--allocation", "energy", "--calibration", "mixture:16", "--max-series", 3, "--seed", 5)
    result = cli("compress", bolt_folder, *how, "--out", tmp_path / "small")
    assert result.exit_code == 0, result.stderr
    assert (asked["baseline"].source, asked["how"].seed) == (str(bolt_folder), 5)
    loaded = asked["suite"]
    assert (loaded.suite.name, loaded.max_series) == ("embedded", 3)
    report = json.loads((tmp_path / "small" / "compress.json").read_text())
    assert 1.04 < report["search"]["score"] <= 1.09
    assert "95 % bound" in result.stdout
    assert "warning: the size is chosen on" not in result.stderr
    assert 1 - 0.1 <= open_checkpoint(tmp_path / "small").parameters / whole < 0.95
    assert "relative WQL on embedded" in result.stdout
    assert result.stdout.count(" yes") + result.stdout.count(" no") >= len(report["search"]["steps"])
    lines = [line for line in result.stderr.splitlines() if line.endswith((" holds", " does not hold"))]
    assert len(lines) == len(report["search"]["steps"])
    for line, step in zip(lines, report["search"]["steps"], strict=True):
        assert line.startswith("ratio 0.")
        assert f"relative WQL on embedded {step['score']:.4f}, at most {step['upper']:.4f}, " in line


@pytest.mark.slow
def test_a_time_in_place_of_a_size(
    document: Callable[..., Any],
    cli: Callable[..., Any],
    bolt_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Fake:
        conditions: ClassVar = {"cpu": "a faster one", "cores": "64", "device": "cpu", "threads": "64", "batch": "8"}

        def __init__(self, checkpoint: Any, batch: int, *_: Any) -> None:
            assert (checkpoint.source, batch) == (str(bolt_folder), 8)

        def milliseconds(self) -> float:
            return 50.0

        def __call__(self, folders: list[Path]) -> list[float]:
            whole = open_checkpoint(bolt_folder).parameters
            return [open_checkpoint(folder).parameters / whole for folder in folders]

    monkeypatch.setattr("rankscope_eval.bench.Clock", Fake, raising=False)
    how = ("--latency", "45ms", "--batch", 8, *SET, "--probe", "mixture:4")
    found = document("compress", bolt_folder, *how, "--out", tmp_path / "small")
    assert found["search"]["measure"] == "time of 8 series"
    assert 0.85 < found["search"]["score"] == found["ratio"] <= 0.9
    assert set(found["asked"]) == {"time"}
    sought = read_recipe(tmp_path / "small").sought
    assert sought is not None
    assert (sought.measure, sought.most, sought.conditions) == ("time of 8 series", pytest.approx(0.9), Fake.conditions)
    again = cli("compress", bolt_folder, "--recipe", tmp_path / "small/recipe.yaml", "--out", tmp_path / "again")
    assert again.exit_code == 0
    assert "measured on another machine (a faster one, 64, cpu), not on this one" in again.stderr
    assert "--latency 0.9." in again.stderr
    old = "".join((tmp_path / "small/recipe.yaml").read_text().partition("sought:")[:1])
    (tmp_path / "old.yaml").write_text(old)  # as releases before this one left them
    again = cli("compress", bolt_folder, "--recipe", tmp_path / "old.yaml", "--out", tmp_path / "older")
    assert again.exit_code == 0
    assert "another machine" not in again.stderr
    refused = cli("compress", bolt_folder, "--latency", "60ms", "--batch", 8, "--out", tmp_path / "fast")
    assert "the original takes 50 ms; there is nothing to cut" in refused.stderr


@pytest.mark.slow
def test_a_loss_that_nothing_holds_names_the_nearest(
    cli: Callable[..., Any], bolt_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankscope_eval.Scorer.rows", lambda *_: [])
    monkeypatch.setattr("rankscope_cli.loss_bound._bounded", lambda *_: Measured(1.0, 1.03))
    result = cli("compress", bolt_folder, "--method", "svd", "--max-loss", "0.01", "--out", tmp_path / "small")
    assert result.exit_code == 2
    assert "nearest is a max loss of 0.03" in result.stderr.splitlines()[-1]
    assert not (tmp_path / "small").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--method", "joint", "--sites", "q", "--attention-ratio", "0.5"), "q and k of a head together"),
        (("--method", "whitened", "--attention-ratio", "0.5", "--calibration", "kernelsynth:0"), "at least 1"),
        (("--method", "whitened", "--attention-ratio", "0.5", "--calibration", "nowhere.csv"), "nowhere.csv"),
        (
            ("--method", "whitened", "--attention-ratio", "0.5", "--calibration", "no.safetensors"),
            "there is no such file",
        ),
        (("--method", "svd", "--parameters", "10"), "parameters 10 is out of reach"),
        (("--bytes", "many"), "--bytes 'many' is not a number of bytes, such as 5000000, 5MB or 5MiB."),
        (("--bytes", "5 iB"), "--bytes '5 iB' is not a number of bytes"),
        (("--parameters", "5MB"), "--parameters '5MB' is not a number, such as 5000000 or 5M."),
        (("--method", "svd", "--parameters", "0.01k"), "parameters 10 is out of reach"),
        (("--parameters", "1.5"), "parameters 1.5 is not a budget"),
        (("--bytes", "1e5", "--parameters", "1e4"), "give one budget"),
        (("--attention-ratio", "0.5", "--parameters", "1e4"), "not attention ratio and a budget of parameters"),
        (("--method", "svd", "--cache-bytes", "1000"), "use method joint"),
        (("--eps", "0.1", "--allocation", "energy"), "eps is one tolerance"),
        (("--attention-ratio", "0.5", "--device", "cuda"), "is not supported"),
        (("--max-loss", "0.1", "--attention-ratio", "0.5"), "leave out --eps, the ratios"),
        (("--max-loss", "0.1", "--bytes", "1e5"), "all budgets"),
        (("--max-loss", "2 %"), "--max-loss"),
        (("--max-loss", "0.1", "--method", "depth"), "--max-loss does not search with method depth: take joint+stream"),
        (("--latency", "0.5", "--method", "stream"), "--latency does not search with method stream"),
        (("--latency", "0.5", "--method", "svd"), "allocation uniform-eps knows no prices"),
        (("--max-loss", "-0.1"), "max loss -0.1 is not usable"),
        (("--max-loss", "5"), "max loss 5 is not usable: give a share from 0 to 1, e.g. 0.02 for 2 %"),
        (("--max-loss", "0.1", "--suite", "embeded"), "did you mean 'embedded'"),
        (("--attention-ratio", "0.1", "--suite", "embedded"), "--suite requires --max-loss"),
        (("--attention-ratio", "0.1", "--max-series", "2"), "--max-series requires --max-loss"),
        (("--latency", "0.5", "--ratio", "0.3"), "--latency searches for the size; leave out"),
        (("--latency", "0.5", "--max-loss", "0.3"), "--latency searches for the size; leave out"),
        (("--latency", "soon"), "--latency 'soon' is not a time"),
        (("--latency", "0ms"), "--latency '0ms' is not a time"),
        (("--latency", "40"), "--latency 40: a fraction of the original's time is at most 1; did you mean 40ms?"),
        (("--latency", "2x"), "time 2 must lie in (0, 1]"),
        (("--ratio", "30"), "did you mean 0.3?"),
        (("--ratio", "101"), "try 0.4"),
        (("--ratio", "0.5", "--calibration", "mixtur:64"), "did you mean 'mixture'?"),
        (("--ratio", "0.5", "--batch", "8"), "--batch requires --latency"),
        (("--layers", "3", "--ratio", "0.5"), "give one size"),
        (("--storage", "int8", "--sites", "zzz"), "--sites requires a size, such as --ratio 0.3: --storage or --dtype"),
        (("--storage", "int8", "--multiple", "8"), "--multiple requires a size"),
        (("--dtype", "bfloat16", "--allocation", "energy"), "--allocation requires a size"),
        (("--dtype", "bfloat16", "--refine"), "--refine requires a size"),
    ],
)
def test_what_is_refused(
    options: tuple[str, ...], message: str, refused: Callable[..., str], bolt_folder: Path, tmp_path: Path
) -> None:
    assert message in refused("compress", bolt_folder, *options, "--out", tmp_path / "small")
    assert not (tmp_path / "small").exists()


def test_joint_on_chronos_2(document: Callable[..., Any], chronos2_folder: Path, tmp_path: Path) -> None:
    """Heads of values everywhere; queries and keys that rotary positions turn are factored."""
    how = ("--method", "joint", "--attention-ratio", "0.6", "--allocation", "energy", *SET)
    result = document("compress", chronos2_folder, *how, "--out", tmp_path / "small")
    layouts = {(site["role"], site["layout"]) for site in result["sites"]}
    assert {("self.q", "factored"), ("self.v", "head-width"), ("group.q", "head-width")} <= layouts
    assert result["selected_ratio"] <= 0.6


def test_layouts_that_joint_cannot_cut(
    cli: Callable[..., Any], refused: Callable[..., str], bolt_folder: Path, tmp_path: Path
) -> None:
    how = ("--method", "joint", "--attention-ratio", "0.5", *SET)
    assert cli("compress", bolt_folder, "--attention-ratio", "0.5", "--out", tmp_path / "factored").exit_code == 0
    assert "two factors" in refused("compress", tmp_path / "factored", *how, "--out", tmp_path / "small")


def test_moments_of_another_model_and_damaged_ones(
    cli: Callable[..., Any], refused: Callable[..., str], bolt_folder: Path, moments: Path, tmp_path: Path
) -> None:
    assert cli("compress", bolt_folder, "--attention-ratio", "0.5", "--out", tmp_path / "factored").exit_code == 0
    how = ("--method", "whitened", "--attention-ratio", "0.5", "--calibration", moments, "--out", tmp_path / "small")
    assert "belongs to" in refused("compress", tmp_path / "factored", *how)
    moments.write_bytes(moments.read_bytes()[:-9])
    assert "is damaged" in refused("compress", bolt_folder, *how)
    model = bolt_folder / "model.safetensors"
    moments.write_bytes(model.read_bytes())
    assert "is not a calibration" in refused("compress", bolt_folder, *how)
