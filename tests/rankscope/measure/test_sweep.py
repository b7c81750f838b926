"""Measurements of a point against bare numpy; results survive JSON."""

import json
import statistics

import numpy as np
import pytest
from safetensors.torch import load_file

from rankscope import read_sweep_report
from rankscope.checkpoints import open_checkpoint
from rankscope.errors import DataError, OptionError
from rankscope.io import codec
from rankscope.measure.sweep import (
    PointRanks,
    SweepReport,
    SweepRow,
    mean_head_rank,
    measure_models,
    measure_point,
)

EPS = (0.5, 0.1)


def rank(matrix, eps):
    sigma = np.linalg.svd(matrix, compute_uv=False)
    return int((sigma > eps * sigma[0]).sum())


@pytest.fixture
def measured(chronos_t5_folder) -> tuple[PointRanks, dict[str, np.ndarray]]:
    tensors = {
        name: tensor.double().numpy() for name, tensor in load_file(chronos_t5_folder / "model.safetensors").items()
    }
    return measure_point(str(chronos_t5_folder), EPS), tensors


def test_ranks_of_w_q_are_numpys(measured):
    ranks, tensors = measured
    names = {
        "encoder.self": [f"encoder.block.{i}.layer.0.SelfAttention.q.weight" for i in range(2)],
        "decoder.self": [f"decoder.block.{i}.layer.0.SelfAttention.q.weight" for i in range(3)],
        "decoder.cross": [f"decoder.block.{i}.layer.1.EncDecAttention.q.weight" for i in range(3)],
    }
    assert set(ranks.layer_ranks) == set(ranks.head_ranks) == set(names)
    for eps in EPS:
        everything, heads = [], []
        for group, members in names.items():
            expected = [rank(tensors[name], eps) for name in members]
            sliced = [[rank(tensors[name][h * 4 : h * 4 + 4], eps) for h in range(2)] for name in members]
            assert ranks.layer_ranks[group][str(eps)] == expected
            assert ranks.head_ranks[group][str(eps)] == sliced
            assert ranks.mean_ranks[group][str(eps)] == pytest.approx(statistics.fmean(expected))
            everything += expected
            heads += [one for layer in sliced for one in layer]
        assert ranks.mean_ranks["all"][str(eps)] == pytest.approx(statistics.fmean(everything))
        assert mean_head_rank(ranks, str(eps)) == pytest.approx(statistics.fmean(heads))


def test_size_and_vocabulary(measured):
    ranks, tensors = measured
    attention = [t for name, t in tensors.items() if "Attention." in name and "bias" not in name]
    assert ranks.attention_parameters == sum(t.size for t in attention)
    assert ranks.bytes == 4 * sum(t.size for t in tensors.values())
    corpus, vocabulary = ranks.embeddings
    assert (corpus.matrix, vocabulary.matrix, vocabulary.tokens) == ("corpus", "vocabulary", 64)
    np.testing.assert_allclose(vocabulary.sigma, np.linalg.svd(tensors["shared.weight"], compute_uv=False), rtol=1e-6)
    assert vocabulary.eps_ranks["0.1"] == rank(tensors["shared.weight"], 0.1)


def test_bolt_has_no_vocabulary(bolt_folder):
    assert [one.matrix for one in measure_point(str(bolt_folder), EPS).embeddings] == ["corpus"]


def test_queries_that_no_gradient_reaches_are_in_no_mean(bolt_folder):
    ranks = measure_point(str(bolt_folder), EPS)
    assert set(ranks.mean_ranks) == {"encoder.self", "decoder.cross", "all"}
    trained = [rank for name in ("encoder.self", "decoder.cross") for rank in ranks.layer_ranks[name]["0.1"]]
    assert ranks.mean_ranks["all"]["0.1"] == pytest.approx(statistics.fmean(trained))


def rows(ranks: PointRanks) -> tuple[SweepRow, ...]:
    done = SweepRow(
        point="d-16",
        fields={"model.d_model": 16},
        config={"model": {"d_model": 16}},
        state="done",
        folder="points/d-16",
        parameters=99,
        steps=6,
        loss=1.5,
        seconds=2.0,
        resumed_at=(4,),
        ranks=ranks,
        scores={"WQL": 0.5},
        scored_with="embedded",
    )
    return done, SweepRow("d-32", {"model.d_model": 32}, {}, state="failed", error="the loss became nan")


def test_a_report_survives_json(measured):
    report = SweepReport("width", "about", "out", EPS, rows(measured[0]))
    again = codec.parse(SweepReport, json.loads(codec.text(report)))
    assert again == report
    assert [row.point for row in again.done] == ["d-16"]
    assert [row.point for row in again.failed] == ["d-32"]


def test_a_report_is_read_from_its_folder_or_file(measured, tmp_path):
    report = SweepReport("width", "about", "out", EPS, rows(measured[0]))
    file = tmp_path / "sweep.json"
    file.write_text(json.dumps(codec.plain(report)))
    assert read_sweep_report(tmp_path) == read_sweep_report(file) == report
    bad = {"{": "is not valid JSON", "[]": "names no schema", '{"schema": "rankscope/sweep@1"}': "name is missing"}
    for text, message in bad.items():
        file.write_text(text)
        with pytest.raises(DataError, match=message):
            read_sweep_report(file)
    with pytest.raises(DataError, match="no file or folder"):
        read_sweep_report(tmp_path / "none.json")


def test_the_table_has_a_row_per_point(measured):
    ranks = measured[0]
    frame = SweepReport("width", "about", "out", EPS, rows(ranks)).to_frame()
    first, second = frame.to_dict("records")
    assert first["model.d_model"] == 16
    assert first["rank@0.1"] == ranks.mean_ranks["all"]["0.1"]
    assert first["encoder.self.rank@0.5"] == ranks.mean_ranks["encoder.self"]["0.5"]
    assert first["vocabulary.rank@0.1"] == ranks.embeddings[1].eps_ranks["0.1"]
    assert (first["WQL"], first["resumed"]) == (0.5, 1)
    assert (second["state"], second["error"]) == ("failed", "the loss became nan")
    assert np.isnan(second["rank@0.1"])


def test_finished_checkpoints_are_the_points_of_a_sweep(t5_folder, bolt_folder):
    report = measure_models([t5_folder, str(bolt_folder)], EPS)
    assert codec.parse(SweepReport, json.loads(codec.text(report))) == report
    assert [row.point for row in report.done] == [str(t5_folder), str(bolt_folder)]
    for row, patch in zip(
        report.done, (1, open_checkpoint(bolt_folder).config["chronos_config"]["input_patch_size"]), strict=True
    ):
        checkpoint = open_checkpoint(row.point)
        assert row.ranks == measure_point(row.point, EPS)
        assert row.parameters == checkpoint.parameters
        assert row.config["model"]["d_model"] == checkpoint.config["d_model"]
        assert row.config["model"]["patch_size"] == patch


@pytest.mark.parametrize("models", [[], ["bundled", "bundled"]])
def test_no_models_or_one_twice_are_refused(models):
    with pytest.raises(OptionError, match="at least one checkpoint, and none of them twice"):
        measure_models(models)
