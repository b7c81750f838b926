"""Files of the user's series: every verb that takes them takes the same options for them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from tests.rankscope_cli.test_pretrain import RUN
from tests.rankscope_cli.test_sweep import BASE

from rankscope.compress.calibration import load_calibration

NAMES = ("--id-column", "shop", "--time-column", "day", "--target-column", "sold")
COMPRESS = ("compress", "bolt", "--out", "out")
FILES = {
    "embed": ("embed", "bolt", "--length", "16", "--n", "4", "--signal"),
    "flow": ("flow", "bolt", "--length", "16", "--n", "4", "--signal"),
    "calibrate": ("calibrate", "bolt", "--calibration"),
    "compress": (*COMPRESS, "--ratio", "0.7", "--calibration"),
    "probe": (*COMPRESS, "--attention-ratio", "0.7", "--method", "joint", "--calibration", "mixture:2", "--probe"),
    "heal": ("heal", "small", "--teacher", "bolt", "--steps", "1", "--out", "out", "--device", "cpu", "--input"),
    "synth": ("synth", "--kind", "tsmixup", "--n", "4", "--length", "16", "--out", "out", "--input"),
    "table2": ("table2", "bolt", "--out", "out", "--calibration"),
}
"""Verbs that read a file of series, up to its name."""
SCORED = {
    "eval": ("eval", "naive"),
    "compress": (*COMPRESS, "--max-loss", "1"),
    "table2": ("table2", "bolt", "--out", "out"),
    "sweep": ("sweep", "toy.yaml", "--out", "out", "--device", "cpu"),
    "pretrain": ("pretrain", "run.yaml", "--out", "out", "--device", "cpu"),
}
"""Verbs that score on a file of series in place of a suite."""
REQUIRED = {
    "embed": "--signal",
    "flow": "--signal",
    "heal": "--input",
    "synth": "--input",
    "calibrate": "--calibration",
}


@pytest.fixture(autouse=True)
def _folder(bolt_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with a model, a run, a sweep and ``sales.csv``: three shops, refused without names of columns.

    Shop a has a value per week, shops b and c one per day: without a frequency, the first one's is inferred.
    ``plain.csv`` holds the same series, every day of them, in the usual names.
    """
    monkeypatch.chdir(tmp_path)
    shutil.copytree(bolt_folder, "bolt")
    Path("run.yaml").write_text(RUN + "validation: {every: 3}\n")
    Path("toy.yaml").write_text(yaml.safe_dump({"base": BASE, "points": {"a": {}}}))
    rng = np.random.default_rng(0)
    weeks, days = pd.date_range("2024-01-01", periods=12, freq="7D"), pd.date_range("2024-01-01", periods=60)
    parts = [pd.DataFrame({"shop": "a", "day": weeks}), *(pd.DataFrame({"shop": name, "day": days}) for name in "bc")]
    frame = pd.concat(parts).assign(sold=lambda rows: rng.gamma(4, 10, len(rows)).round(3), price=7.0)
    frame.assign(id=[f"row {number}" for number in range(len(frame))]).to_csv("sales.csv", index=False)
    plain = frame.rename(columns={"shop": "id", "day": "timestamp", "sold": "target"}).drop(columns="price")
    whole = pd.concat([one.set_index("timestamp").resample("D").first() for _, one in plain.groupby("id")])
    whole.assign(id=whole["id"].ffill()).to_csv("plain.csv")


@pytest.mark.parametrize("verb", FILES)
def test_names_and_frequency_reach_the_reader_of_a_file(cli: Any, verb: str) -> None:
    if verb == "heal":
        assert cli("compress", "bolt", "--attention-ratio", "0.4", "--out", "small").exit_code == 0
    words = (*FILES[verb], "sales.csv", *NAMES)
    for more, message in ((), "series 'b' does not follow freq 'W"), (("--freq", "X"), "freq 'X' is not known"):
        result = cli(*words, *more)
        assert result.exit_code == 2
        assert re.search(f"^error: .*{message}.*$", result.stderr.splitlines()[-1])  # a probe is read after the model
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("verb", "option", "value"),
    [
        *((verb, name, value) for verb in REQUIRED for name, value in (("--freq", "D"), ("--target-column", "sold"))),
        ("compress", "--freq", "D"),
        ("table2", "--id-column", "shop"),
    ],
)
def test_options_about_a_file_without_a_file(refused: Any, verb: str, option: str, value: str) -> None:
    required = REQUIRED.get(verb, "--input FILE or --calibration")
    assert f"{option} requires {required} FILE" in refused(*FILES[verb][:-1], option, value)


@pytest.mark.parametrize("verb", SCORED)
def test_a_scored_file_and_a_suite(refused: Any, verb: str) -> None:
    words = SCORED[verb]
    suite = "--data" if verb == "pretrain" else "--score" if verb == "sweep" else "--suite"
    own = ("--input", "plain.csv")
    assert "--input requires --horizon STEPS" in refused(*words, *own)
    assert "--windows requires --input FILE: suites say it" in refused(*words, "--windows", "2")
    assert "--season-length requires --input FILE: suites say it" in refused(*words, "--season-length", "7")
    assert "--freq requires --input FILE" in refused(*words, "--freq", "D")
    both = refused(*words, *own, "--horizon", "7", suite, "embedded")
    assert f"{suite} selects a suite, and --input replaces it: give one of the two." in both
    assert "'b' has 60 values, but 3 windows of 21 steps need" in refused(
        *words, *own, "--horizon", "21", "--windows", "3"
    )
    assert not Path("out").exists()


@pytest.mark.parametrize("verb", ["embed", "flow"])
def test_a_measured_file_is_that_of_the_usual_names(document: Any, verb: str) -> None:
    found = document(*FILES[verb], "sales.csv", *NAMES, "--freq", "D")
    usual = document(*FILES[verb], "plain.csv")
    rows = "rows" if verb == "embed" else "layers"
    assert found[rows][0]["sigma"] == usual[rows][0]["sigma"]


def test_a_folder_is_the_file_that_holds_all_of_it(document: Any) -> None:
    Path("parts/later").mkdir(parents=True)
    frame = pd.read_csv("plain.csv")
    for name, part in zip(("0.csv", "1.csv", "later/2.csv"), (one for _, one in frame.groupby("id")), strict=True):
        part.to_csv(f"parts/{name}", index=False)
    read = [document(*FILES["embed"], place)["rows"][0]["sigma"] for place in ("plain.csv", "parts")]
    assert read[0] == read[1]
    one, other = (document(*SCORED["eval"], "--input", place, "-H", "4")["rows"][0] for place in ("plain.csv", "parts"))
    assert (one["MASE"], one["WQL"]) == (other["MASE"], other["WQL"])


def test_moments_know_how_their_file_was_read(document: Any) -> None:
    """Compressing by them reads it again, to refine; so does the recipe of the result."""
    report = document(*FILES["calibrate"], "sales.csv", *NAMES, "--freq", "D", "--out", "m.safetensors")
    document(*FILES["calibrate"], "plain.csv", "--out", "plain.safetensors")
    found, usual = (load_calibration(name).settings for name in ("m.safetensors", "plain.safetensors"))
    assert report["series"] == 3
    assert found.data == usual.data
    how = ("--attention-ratio", "0.7", "--method", "joint", "--allocation", "energy")
    small = document("compress", "bolt", *how, "--calibration", "m.safetensors", "--out", "small")
    assert small["refined"]
    direct = document("compress", "bolt", *how, "--calibration", "sales.csv", *NAMES, "--freq", "D", "--out", "direct")
    document("compress", "bolt", "--recipe", "direct", "--out", "again")
    recipes = [Path(folder, "recipe.yaml").read_text() for folder in ("small", "direct", "again")]
    assert yaml.safe_load(recipes[0])["columns"] == {"id": "shop", "time": "day", "target": "sold"}
    assert yaml.safe_load(recipes[0])["freq"] == "D"
    assert recipes[1].splitlines()[1:] == recipes[2].splitlines()[1:]
    assert direct["refined"]


def test_training_and_shards_draw_from_the_named_column(document: Any, cli: Any) -> None:
    """By the usual names alone, the file is refused."""
    assert cli("compress", "bolt", "--attention-ratio", "0.4", "--out", "small").exit_code == 0
    columns = {"id": "shop", "time": "day", "target": "sold"}
    healed = document(*FILES["heal"], "sales.csv", *NAMES, "--freq", "D")
    assert (healed["options"]["columns"], healed["options"]["freq"]) == (columns, "D")
    mixture = {"files": ["sales.csv"], "file_share": 0.9, "columns": columns, "freq": "D"}
    Path("tune.yaml").write_text(RUN + yaml.safe_dump({"mixture": mixture}))
    tuned = document("pretrain", "tune.yaml", "--out", "out", "--force", "--device", "cpu")
    assert tuned["steps"] == 3
    assert document(*FILES["synth"], "sales.csv", *NAMES, "--freq", "D", "--force")["series"] == 4


@pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=pytest.mark.slow if verb in ("compress", "table2") else ()) for verb in SCORED]
)
def test_a_scored_file_is_the_suite_that_says_the_same(document: Any, verb: str) -> None:
    task = {"name": "sales", "prediction_length": 4, "offset": -8, "num_rolls": 2, "freq": "D", "season_length": 7}
    names = dict(zip(("id_column", "time_column", "target_column"), NAMES[1::2], strict=True))
    Path("suite.yaml").write_text(json.dumps([{**task, **names}]))
    own = ("--input", "sales.csv", "-H", "4", "--windows", "2", "--freq", "D", "--season-length", "7", *NAMES)
    suite = {"sweep": ("--score", "suite.yaml")}.get(verb, ("--suite", "suite.yaml"))
    words, more = SCORED[verb], ()
    if verb == "compress":
        more = ("--method", "svd", "--force")
    elif verb == "table2":
        more = ("-r", "0.6", "-m", "svd", "--overlap-series", "2", "-c", "mixture:2", "--seeds", "0", "--force")
    elif verb == "sweep":
        more = ("--num-samples", "2", "--force")
    elif verb == "pretrain":
        more, suite = ("--force",), ()

    def scores(words: tuple[str, ...]) -> Any:
        found = document(*words)
        if verb == "eval":
            return [(row["model"], row["MASE"], row["WQL"]) for row in found["rows"]]
        if verb == "compress":
            return found["search"]["score"]
        if verb == "table2":
            return [(row["WQL"], row["MASE"]) for row in found["original"]["scores"]]
        if verb == "sweep":
            return [found["points"][0]["scores"][name] for name in ("WQL", "MASE", "relative_WQL")]
        return Path("out/validation.csv").read_text()

    measured = scores((*words, *more, *own))
    if verb == "pretrain":
        assert json.loads(Path("out/pretrain.json").read_text())["config"]["validation"]["suite"] == "sales.csv"
        Path("run.yaml").write_text(RUN + "validation: {every: 3, suite: suite.yaml}\n")
    assert measured == scores((*words, *more, *suite))


def test_a_sweep_says_what_it_was_scored_with(document: Any, cli: Any) -> None:
    words = (*SCORED["sweep"], "--input", "plain.csv", "-H", "4", "--num-samples", "2")
    once, again = (document(*words, *more)["points"][0]["scored_with"] for more in ((), ("--windows", "2")))
    assert re.fullmatch(r"plain.csv, horizon 4, 2 samples, contents \w{8}", once)
    assert re.fullmatch(r"plain.csv, horizon 4, windows 2, 2 samples, contents \w{8}", again)


def test_few_series_of_one_file_are_said(cli: Any) -> None:
    result = cli(*SCORED["compress"], "--method", "svd", "--input", "plain.csv", "-H", "4")
    assert result.exit_code == 0, result.stderr
    assert "the size is chosen on 3 series with an error of one data set: below 10" in " ".join(result.stderr.split())


def test_no_validation_no_file_of_it(refused: Any) -> None:
    Path("run.yaml").write_text(RUN)
    words = ("--input", "plain.csv", "--horizon", "4")
    assert "--input has no effect: validation.every is 0" in refused(*SCORED["pretrain"], *words)


def by_frequency(folder: Path, hourly: str, monthly: str) -> None:
    """Write an hourly and a monthly series with their seasons, under names that decide which is read first."""
    folder.mkdir()
    for name, freq, season in ((hourly, "h", 24), (monthly, "MS", 12)):
        times = pd.date_range("2015-01-01", periods=120, freq=freq)
        values = 10 + 5 * np.sin(2 * np.pi * np.arange(120) / season) + np.random.default_rng(0).normal(0, 0.1, 120)
        rows = {"item_id": freq, "timestamp": times, "target": values}
        pd.DataFrame(rows).to_csv(folder / f"{name}.csv", index=False)


def test_every_series_is_forecast_by_its_own_season(cli: Any) -> None:
    by_frequency(Path("hours"), "a", "b")
    by_frequency(Path("months"), "b", "a")
    found = []
    for folder in ("hours", "months"):
        result = cli("eval", "seasonal-naive", "--input", folder, "-H", "6", "--windows", "2", "--json")
        assert result.exit_code == 0, result.stderr
        (row,) = json.loads(result.stdout)["rows"]
        assert row["season_length"] is None
        found.append((row["MASE"], row["WQL"]))
    assert found[0] == pytest.approx(found[1], rel=1e-6)
    assert found[0][0] < 2


def test_the_folder_one_works_in_is_a_data_set(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    by_frequency(Path("both"), "a", "b")
    monkeypatch.chdir("both")
    result = cli("eval", "naive", "--input", ".", "-H", "6", "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert (document["suite"], document["rows"][0]["dataset"]) == ("both", "both")


def test_windows_without_a_scale_are_told(cli: Any) -> None:
    days = pd.date_range("2024-01-01", periods=20)
    rows = [pd.DataFrame({"item_id": name, "timestamp": days, "target": 1.0}) for name in ("a", "b")]
    rows[0]["target"] = np.arange(20.0)
    pd.concat(rows).to_csv("flat.csv", index=False)
    result = cli("eval", "naive", "--input", "flat.csv", "-H", "2")
    assert "1 of 2 windows of flat do not count in MASE: the values before them are constant or a single one (or" in (
        result.stdout
    )
