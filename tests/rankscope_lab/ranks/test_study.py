import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from rankscope.errors import DataError, OptionError
from rankscope.io import codec
from rankscope_lab.ranks.compress import CurvePoint
from rankscope_lab.ranks.runs import RankedRun, RunSet, read_runs
from rankscope_lab.ranks.study import RankStudy, RunCurve, curve_claims, curve_rows, study_runs

PROJECTING, ATTENDING = ["projection", "projection", "attention"], ["attention"] * 3


@pytest.fixture(scope="module")
def folder(made: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine seeds; what the ranks of each are is plain from the numbers: 5.3 and 5.6 count six."""
    tmp_path = tmp_path_factory.mktemp("runs")
    for seed in range(9):
        wobble = 0.3 * (seed % 3)
        made.encoder(tmp_path / "audit", "linear", seed, [5 + wobble, 6, 7, 8])
        made.encoder(tmp_path / "audit", "linear-ppe", seed, [9, 6, 5 + wobble, 8.5 + wobble])
        made.slt(tmp_path / "slt", "slt-additive", seed, [8, 8 + wobble, 9, 4], PROJECTING, between=[8, 8, 6])
        made.slt(tmp_path / "slt", "patchtst", seed, [8, 4, 8 + wobble, 4], ATTENDING)
        for codes, rank in ((64, 4.0), (1024, 9.0)):
            made.vq(tmp_path / "tokens", codes, seed, rank + wobble)
    (tmp_path / "tokens" / "summary.json").write_text('{"rows": [1, 2]}')
    return tmp_path


def found(study: RankStudy, *words: str) -> dict[str, object]:
    """Verdict by measure, of the one claim that has all the words."""
    picked = [one for one in study.findings if all(word in one.claim for word in words)]
    assert len({one.claim for one in picked}) == 1
    return {one.measure: one for one in picked}


def test_runs_of_all_three_studies_are_found(folder: Path, made: SimpleNamespace, tmp_path: Path) -> None:
    folder = shutil.copytree(folder, tmp_path / "copy")
    made.vq(folder / "tokens", 256, 0, 5.0, diverged=True)
    runs = read_runs([folder / "audit", folder / "slt", folder / "tokens"])
    assert [run.study for run in runs.runs] == ["encoders"] * 18 + ["slt"] * 18 + ["tokenizers"] * 18
    assert len(runs.diverged) == 1
    assert {run.setting for run in runs.runs} == {
        "C4 N512 d64 nll 300 epochs",
        "ETTh1-released-e10",
        "VQ ema d64 80 epochs",
    }
    assert [run.variant for run in runs.runs[-18:]] == ["64"] * 9 + ["1024"] * 9
    assert runs.runs == read_runs([folder]).runs


def test_a_checkpoint_beside_its_run_is_not_another_run(made: SimpleNamespace, tmp_path: Path) -> None:
    detail = json.loads(made.vq(tmp_path / "vq", 64, 0, 4.0).read_text())
    made.vq(tmp_path / "vq", 256, 0, 5.0)
    (tmp_path / "runs").mkdir()
    run = {"schema": "rankscope/lab-tokenizer-run@1", "data": "ETTh1, 99 rows", "detail": detail}
    (tmp_path / "runs" / "vq-64-s0.json").write_text(json.dumps(run))
    found = {one.variant: one.setting for one in read_runs([tmp_path]).runs}
    assert found == {"64": "ETTh1 VQ ema d64 80 epochs", "256": "VQ ema d64 80 epochs"}
    assert len(read_runs([tmp_path]).runs) == 2


def test_ranks_of_the_stream_are_compared_depth_by_depth(folder: Path, made: SimpleNamespace) -> None:
    study = study_runs(read_runs([folder]))
    first = found(study, "linear-ppe has a higher rank than linear at depth 0")
    assert first["rank at 0.1"].verdict == "yes"
    assert (first["rank at 0.1"].mean_first, first["rank at 0.1"].pairs) == (9.0, 9)
    assert first["rank at 0.1"].mean_second == pytest.approx((5 + 6 + 6) / 3)
    assert found(study, "linear-ppe has", "depth 1")["rank at 0.01"].verdict == "unclear"
    assert found(study, "linear-ppe has", "depth 2")["rank at 0.1"].verdict == "no"
    assert found(study, "linear-ppe has", "depth 3")["rank at 0.1"].mean_first > 8
    assert not any("linear-scaled" in one.claim for one in study.findings)


def test_runs_cut_short_are_compared_with_runs_cut_at_the_same_epoch(made: SimpleNamespace, tmp_path: Path) -> None:
    for seed in range(5):
        made.encoder(tmp_path, "linear", seed, [5, 6, 7, 8], stopped=(0, 0, 120, 120, 140)[seed])
        made.encoder(tmp_path, "linear-ppe", seed, [9, 6, 5, 8 + seed], stopped=(0, 160, 120, 120, 140)[seed])
    study = study_runs(read_runs([tmp_path]))
    assert study.cut_short == 7
    assert {one.pairs for one in study.findings} == {4}
    depth = found(study, "linear-ppe has a higher rank than linear at depth 3")["rank at 0.1"]
    assert (depth.mean_first, depth.mean_second) == (8 + (0 + 2 + 3 + 4) / 4, 8)
    assert {(row.setting, row.seeds) for row in study.rows} == {("C4 N512 d64 nll 300 epochs", 5)}


def test_blocks_are_compared_where_their_kinds_differ(folder: Path) -> None:
    study = study_runs(read_runs([folder]))
    claims = {one.claim for one in study.findings if one.question == "b"}
    assert all("slt-additive" in claim for claim in claims)
    # depth 2 is attention in both
    assert not any("depth 2" in claim for claim in claims)
    first = found(study, "attention in patchtst", "depth 0: block")["|log2 change| of rank at 0.1"]
    assert first.mean_first == 1.0  # 8 → 4
    # 8 → 8, 9, 9
    assert first.mean_second == pytest.approx(math.log2(9 / 8) * 2 / 3)
    assert first.verdict == "yes"
    inside = found(study, "inside slt-additive", "block")["|log2 change| of rank at 0.1"]
    assert inside.mean_first == pytest.approx(math.log2(9 / 4))
    half = found(study, "inside slt-additive", "mixing half")["|log2 change| of rank at 0.1"]
    assert half.mean_first == pytest.approx(math.log2(9 / 6))


def test_larger_codebooks_beside_smaller_ones(folder: Path) -> None:
    study = study_runs(read_runs([folder]))
    book = found(study, "the codebook of 1024 codes")["rank at 0.05"]
    assert (book.mean_first > book.mean_second, book.verdict) == (True, "yes")
    stream = found(study, "the stream of 1024 codes")["rank at 0.05"]
    assert stream.mean_first == pytest.approx(book.mean_first / 2, abs=1)


def test_codebooks_are_compared_with_neighbours_and_at_the_ends(made: SimpleNamespace, tmp_path: Path) -> None:
    for codes in (1024, 64, 256):
        made.vq(tmp_path, codes, 0, 4.0)
    pairs = {(one.first, one.second) for one in study_runs(read_runs([tmp_path])).findings}
    assert pairs == {("256", "64"), ("1024", "256"), ("1024", "64")}


def test_rows_are_means_over_seeds(folder: Path, made: SimpleNamespace) -> None:
    study = study_runs(read_runs([folder]))
    (row,) = [
        one for one in study.rows if (one.variant, one.what, one.layer) == ("linear-ppe", "output", 2)
    ]  # fmt: skip
    assert (row.seeds, row.size, row.kind) == (9, 17, "attention")
    expected = []
    for seed in range(3):
        energy = made.flat(8.5 + 0.3 * seed).double().square()
        share = energy[energy > 0] / energy.sum()
        expected.append(math.exp(-float((share * share.log()).sum())))
    assert row.effective == pytest.approx(sum(expected) / 3, rel=1e-5)
    # 8.5, 8.8, 9.1
    assert row.eps_ranks["0.01"] == pytest.approx((9 + 9 + 10) / 3)


def test_the_document_reads_back(folder: Path) -> None:
    study = study_runs(read_runs([folder]), [curve("attention", "svd", 0.5, 0, 1.1)])
    document = json.loads(codec.text(study))
    assert codec.plain(codec.parse(RankStudy, document)) == document
    assert len(study.to_frame()) == len(study.findings)


def curve(kind: str, method: str, ratio: float, seed: int, relative: float, variant: str = "slt") -> RunCurve:
    point = CurvePoint(kind, method, ratio, ratio - 0.01, 100, 2.0 * relative, 2.0)
    return RankedRun("slt", "x", variant, seed, 2.0, None), point


def test_curves_are_averaged_and_compared_by_method_and_kind() -> None:
    costs = (("attention", "svd", 0.5), ("attention", "whitened", 0.1), ("projection", "whitened", 0.3))
    curves = [
        curve(kind, method, 0.25, seed, 1 + cost + 0.01 * seed * cost)
        for kind, method, cost in costs
        for seed in range(3)
    ]
    run, point = curves[0]
    rows = curve_rows([*curves, (replace(run, seed=9), replace(point, loss=None, ratio=None))])
    assert [(row.kind, row.method, row.seeds) for row in rows] == [
        ("attention", "svd", 3), ("attention", "whitened", 3), ("projection", "whitened", 3),
    ]  # fmt: skip
    assert rows[0].relative == pytest.approx(1.505)
    empty = study_runs(RunSet((), ()), curves)
    verdicts = {one.claim: one.verdict for one in empty.findings}
    assert verdicts["slt: cutting attention to 0.25 costs more by svd than by whitened"] == "yes"
    assert verdicts["slt: cut to 0.25 (whitened), attention costs more than projection"] == "no"
    assert len(verdicts) == 2
    assert all(claim.question == "d" for claim in curve_claims(curves))


def test_cuts_of_unequal_size_are_not_compared() -> None:
    curves = [
        (run, replace(point, ratio={"whitened": 0.14, "joint": reached}[point.method]))
        for reached in (0.125, 0.139)
        for seed in range(3)
        for run, point in (
            curve("attention", "whitened", 0.25, seed, 1.1 + 0.01 * seed, f"{reached}"),
            curve("attention", "joint", 0.25, seed, 1.0, f"{reached}"),
        )
    ]
    assert [claim.text for claim in curve_claims(curves) if claim.values] == [
        "0.139: cutting attention to 0.25 costs more by whitened than by joint"
    ]


def test_bad_input(folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(folder, tmp_path / "copy")
    with pytest.raises(DataError, match="there is no folder or file"):
        read_runs([folder / "nowhere"])
    with pytest.raises(DataError, match="no finished run"):
        read_runs([folder / "tokens" / "summary.json"])
    with pytest.raises(DataError, match="hold the same run"):
        read_runs([folder / "audit", folder])
    with pytest.raises(OptionError, match=r"no ranks at ε 0\.2, only at 0\.1, 0\.05, 0\.01"):
        study_runs(read_runs([folder]), eps=(0.2,))
    (folder / "broken.json").write_text("{")
    with pytest.raises(DataError, match=r"broken\.json is not valid JSON"):
        read_runs([folder])


def test_runs_without_ranks_are_counted(tmp_path: Path, made: SimpleNamespace) -> None:
    made.encoder(tmp_path, "linear", 0, None)
    study = study_runs(read_runs([tmp_path]))
    assert (study.unmeasured, study.rows, study.findings) == (1, (), ())


@pytest.mark.parametrize(
    "change",
    [
        {"settings": 5},
        {"settings": {"codes": "x"}},
        {"settings": {"seed": "x"}},
        {"settings": {"unknown": 1}},
        {"test": {"mse": "x"}},
        {"test": {"mse": [1]}},
        {"test": {}},
        {"test": None},
        {"codebook": 5},
        {"stream": {}},
    ],
)
def test_a_damaged_tokenizer_s_run_is_told_in_one_line(tmp_path, made, change):
    file = made.vq(tmp_path, 16, 0, 3.0)
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(DataError) as caught:
        read_runs([tmp_path])
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)
