"""How many damaged shard files a run did without is part of its result."""

import json

import pytest

from rankscope.train import Synthesis, write_shards

RUN = """
family: chronos-bolt
model: {{d_model: 16, d_kv: 4, d_ff: 16, num_layers: 1, num_decoder_layers: 1, num_heads: 2, patch_size: 8}}
context: 32
horizon: 8
max_steps: 2
batch_size: 2
warmup_steps: 1
shards: {shards}
"""


@pytest.fixture
def run_yaml(tmp_path):
    """A run over three shard files, two of them cut off."""
    write_shards(Synthesis("structured", n=12, length=48, shard_size=4), tmp_path / "shards", workers=1)
    for file in sorted((tmp_path / "shards").glob("shard-*"))[1:]:
        file.write_bytes(file.read_bytes()[:-10])
    file = tmp_path / "run.yaml"
    file.write_text(RUN.format(shards=tmp_path / "shards"))
    return file


@pytest.mark.slow
def test_the_result_says_how_many_files_were_left_out(cli, document, refused, run_yaml, tmp_path):
    out = tmp_path / "out"
    command = ["pretrain", run_yaml, "--out", out, "--device", "cpu"]
    assert "is damaged" in refused(*command)
    printed = cli(*command, "--skip-damaged")
    assert printed.exit_code == 0, printed.stderr
    assert printed.stdout.rstrip().endswith(", 2 damaged shard files left out")
    record = json.loads((out / "pretrain.json").read_text())
    assert record["report"]["skipped"] == 2
    assert document(*command, "--resume", "--skip-damaged")["skipped"] == 2


@pytest.mark.slow
def test_a_result_of_before_this_was_counted_is_still_a_result(cli, document, run_yaml, tmp_path):
    out = tmp_path / "out"
    command = ["pretrain", run_yaml, "--out", out, "--device", "cpu", "--skip-damaged"]
    run_yaml.write_text(run_yaml.read_text().replace("shards:", "# shards:") + "bank_kernels: 0\n")
    printed = cli(*command)
    assert printed.exit_code == 0, printed.stderr
    assert "left out" not in printed.stdout
    record = json.loads((out / "pretrain.json").read_text())
    assert record["report"].pop("skipped") == 0
    (out / "pretrain.json").write_text(json.dumps(record))
    before = (out / "model.safetensors").stat().st_mtime_ns
    assert document(*command, "--resume")["skipped"] == 0
    assert (out / "model.safetensors").stat().st_mtime_ns == before
