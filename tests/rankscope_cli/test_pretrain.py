"""The verb pretrain: its options reach the run, and bad input costs one line."""

import json

import pytest

from rankscope.train import Synthesis, write_shards

RUN = """
family: chronos-bolt
model: {d_model: 16, d_kv: 4, d_ff: 16, num_layers: 1, num_decoder_layers: 1, num_heads: 2, patch_size: 8}
context: 32
horizon: 8
bank_kernels: 1
bank_draws: 2
max_steps: 3
batch_size: 2
warmup_steps: 1
log_steps: 1
"""


@pytest.fixture
def run_yaml(tmp_path):
    """``run_yaml("seed: 3")``: a run of three steps, with more lines."""

    def write(more=""):
        file = tmp_path / "run.yaml"
        file.write_text(RUN + more)
        return file

    return write


def saved(folder):
    return json.loads((folder / "pretrain.json").read_text())["config"]


def test_options_replace_fields_of_the_config(document, run_yaml, tmp_path):
    more = "validation: {every: 2, suite: suite.yaml, series: 1}\nspectra: {steps: [0]}\n"
    suite = tmp_path / "suite.yaml"
    suite.write_text("- {name: mine, prediction_length: 2, offset: -2, file: [mine.csv]}\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.csv").write_text(
        "date,a\n" + "".join(f"{2000 + n // 12}-{n % 12 + 1:02d}-01,{n % 5 + 1}\n" for n in range(40))
    )
    out = tmp_path / "out"
    file = run_yaml(more.replace("suite.yaml", str(suite)))
    options = ["--seed", "7", "--dtype", "bfloat16", "--tensorboard", "--data", tmp_path / "data", "--device", "cpu"]
    report = document("pretrain", file, "--out", out, *options)
    assert report["schema"] == "rankscope/pretrain@1"
    assert report["steps"] == 3
    assert (saved(out)["seed"], saved(out)["precision"]) == (7, "bf16")
    assert [line.split(",")[0] for line in (out / "validation.csv").read_text().splitlines()] == ["step", "2", "3"]
    assert (out / "spectra.parquet").is_file()
    assert list((out / "tensorboard").glob("events*"))


def test_off_a_terminal_there_are_lines(cli, run_yaml, tmp_path):
    result = cli("pretrain", run_yaml(), "--out", tmp_path / "out", "--device", "cpu")
    assert result.exit_code == 0, result.stderr
    lines = [line for line in result.stderr.splitlines() if "loss" in line]
    assert len(lines) == 2  # the first and the last
    assert " 1/3 loss " in lines[0]
    assert " 3/3 loss " in lines[1]


def test_without_tensorboard_it_says_so_once(cli, run_yaml, monkeypatch, tmp_path):
    monkeypatch.setattr("rankscope.train.logs.tensorboard_installed", lambda: False)
    result = cli("pretrain", run_yaml(), "--out", tmp_path / "out", "--device", "cpu", "--tensorboard")
    assert result.exit_code == 0
    assert result.stderr.count("rankscope[logs]") == 1


@pytest.mark.parametrize(
    ("more", "options", "named"),
    [
        ("bacth_size: 3", (), "did you mean 'batch_size'"),
        ("spectra: {step: [1]}", (), "did you mean 'spectra.steps'"),
        ("validation: {every: 1, suite: embeded}", (), "did you mean 'embedded'"),
        ("validation: {every: 1, series: -3}", (), "series"),
        ("spectra: {steps: [0], roles: [w]}", (), "'w'"),
        ("shards: nowhere", (), "nowhere"),
        ("", ("--data", "nowhere"), "--data"),
    ],
)
def test_bad_input_is_refused_and_nothing_written(refused, run_yaml, tmp_path, more, options, named):
    assert named in refused("pretrain", run_yaml(more), "--out", tmp_path / "out", "--device", "cpu", *options)
    assert [path.name for path in tmp_path.iterdir()] == ["run.yaml"]


def test_a_run_that_cannot_begin_leaves_no_folder(cli, run_yaml, tmp_path):
    """The user's series are read after the bank was drawn, when there is a folder already."""
    file = run_yaml("mixture: {files: [nowhere.csv], file_share: 0.1}")
    result = cli("pretrain", file, "--out", tmp_path / "out", "--device", "cpu")
    assert result.exit_code == 2
    assert "nowhere.csv does not exist" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["run.yaml"]


def test_another_config_does_not_resume_a_run(refused, run_yaml, tmp_path):
    from rankscope.train import read_config
    from rankscope.train.trainer import training_run

    kept = training_run(read_config(run_yaml()), tmp_path / "out", "fp32", 1)
    with kept.open(resume=False, force=False):
        run = kept.folder
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    command = ["pretrain", run_yaml("learning_rate: 0.5"), "--out", tmp_path / "out", "--device", "cpu", "--resume"]
    assert "learning_rate 0.001, not 0.5" in refused(*command)
    assert "seed 0, not 5" in refused("pretrain", run_yaml(), *command[2:], "--seed", "5")
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("learning_rate: fast", "learning_rate is 'fast': it must be a number."),
        ("spectra: {every: -3}", "spectra.every is -3: it must be at least 0."),
        ("keep_steps: [5, -1]", "keep_steps is -1: it must be at least 0."),
        ("model: {dropout_rate: 1.5}", "model.dropout_rate is 1.5: it must lie in [0, 1)."),
        ("embedding: {source: random, rank: 3}", "embedding.rank is 3 with source random: it is the rank"),
        ("max_stepss: 5", "field 'max_stepss' is not known: did you mean 'max_steps'?"),
        ("low_rank: {schedule: cei}", "low_rank.schedule 'cei' is not known: did you mean 'ceil'?"),
    ],
)
def test_a_bad_value_costs_one_line_and_writes_nothing(text, named, refused, tmp_path):
    (tmp_path / "bad.yaml").write_text(text)
    assert named in refused("pretrain", tmp_path / "bad.yaml", "--out", tmp_path / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.yaml"]


def test_a_bad_value_of_a_sweep_names_its_point(refused, tmp_path):
    (tmp_path / "bad.yaml").write_text("axes: {max_steps: ['9']}\n")
    named = refused("sweep", tmp_path / "bad.yaml", "--out", tmp_path / "x")
    assert "point 'max_steps-9': max_steps is '9': it must be a whole number." in named
    assert [path.name for path in tmp_path.iterdir()] == ["bad.yaml"]


@pytest.fixture
def damaged_shards(tmp_path):
    """A run over three shard files, two of them cut off."""
    write_shards(Synthesis("structured", n=12, length=48, shard_size=4), tmp_path / "shards", workers=1)
    for file in sorted((tmp_path / "shards").glob("shard-*"))[1:]:
        file.write_bytes(file.read_bytes()[:-10])
    file = tmp_path / "run.yaml"
    file.write_text(f"{RUN}shards: {tmp_path / 'shards'}\n")
    return file


@pytest.mark.slow
def test_the_result_says_how_many_files_were_left_out(cli, document, refused, damaged_shards, tmp_path):
    out = tmp_path / "out"
    command = ["pretrain", damaged_shards, "--out", out, "--device", "cpu"]
    assert "is damaged" in refused(*command)
    printed = cli(*command, "--skip-damaged")
    assert printed.exit_code == 0, printed.stderr
    assert printed.stdout.rstrip().endswith(", 2 damaged shard files skipped")
    record = json.loads((out / "pretrain.json").read_text())
    assert record["report"]["skipped"] == 2
    assert document(*command, "--resume", "--skip-damaged")["skipped"] == 2


@pytest.mark.slow
def test_a_result_of_before_this_was_counted_is_still_a_result(cli, document, damaged_shards, tmp_path):
    out = tmp_path / "out"
    command = ["pretrain", damaged_shards, "--out", out, "--device", "cpu", "--skip-damaged"]
    damaged_shards.write_text(damaged_shards.read_text().replace("shards:", "# shards:"))
    printed = cli(*command)
    assert printed.exit_code == 0, printed.stderr
    assert "skipped" not in printed.stdout
    record = json.loads((out / "pretrain.json").read_text())
    assert record["report"].pop("skipped") == 0
    (out / "pretrain.json").write_text(json.dumps(record))
    before = (out / "model.safetensors").stat().st_mtime_ns
    assert document(*command, "--resume")["skipped"] == 0
    assert (out / "model.safetensors").stat().st_mtime_ns == before


def test_what_is_no_config_is_told_apart(refused, tmp_path):
    assert "there is no file nowhere.yaml" in refused("pretrain", "nowhere.yaml", "--out", tmp_path / "x")
    assert f"folder {tmp_path} has no pretrain.yaml" in refused("pretrain", tmp_path, "--out", tmp_path / "x")
    assert "did you mean 'bundled-bolt'?" in refused("pretrain", "bundled-bold", "--out", tmp_path / "x")
