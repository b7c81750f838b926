"""Several tables at once: shared runs are asked for once; what cannot be asked for is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rankscope.errors import DataError, OptionError
from rankscope.io import codec
from rankscope_lab.encoders import runs
from rankscope_lab.encoders.report import (
    CHOICES,
    AuditReport,
    audit_report,
    audit_runs,
    needs_etth1,
    protocol,
)
from rankscope_lab.encoders.run_spec import Point, RunResult, RunSpec
from rankscope_lab.encoders.runs import stored_runs


def test_tables_share_runs() -> None:
    alone = {name: set(audit_runs(protocol([name]))) for name in CHOICES}
    everything = audit_runs(protocol(["all"]))
    assert len(everything) == len(set(everything))
    assert set(everything) == set().union(*alone.values())
    assert alone["5"] | alone["8"] | alone["9"] | alone["10"] | alone["11"] <= alone["1"]
    assert alone["1"] < alone["2"]
    # the paper's grid: main 160 + 160 + 140, rich 100, widths 2 × 120, ETTh1 160, MSE 60; nobias 5, large 16,
    # and the two controls, which the paper has not
    assert len(everything) == 460 + 100 + 240 + 160 + 60 + 5 + 16 + 40


def test_only_table_13_and_paired_tests_need_etth1() -> None:
    needing = [name for name in CHOICES if needs_etth1(audit_runs(protocol([name])))]
    assert needing == ["13", "paired"]


def test_fewer_seeds_epochs_and_encoders() -> None:
    specs = audit_runs(protocol(["1", "6"], seeds=3, epochs=40, encoders=["mlp", "ci"]))
    assert {(spec.encoder, spec.epochs) for spec in specs} == {("mlp", 40), ("ci", 40)}
    assert len(specs) == 3 + 3 + 3 + 3  # ci and mlp at C=4, mlp at C=8 and 16
    assert protocol(["1"]).warning == ""
    assert "in place of 20 × 300" in protocol(["1"], epochs=40).warning
    assert "Fewer seeds" in protocol(["1"], seeds=5).warning


@pytest.mark.parametrize(
    ("tables", "how", "said"),
    [
        (["14"], {}, "table '14' is not known"),
        (["pairs"], {}, "did you mean 'paired'"),
        (["1"], {"encoders": ["liner"]}, "did you mean 'linear'"),
        (["1"], {"encoders": []}, "is empty"),
        (["1"], {"seeds": 0}, "at least 1"),
        (["1"], {"epochs": 0}, "at least 1"),
    ],
)
def test_bad_requests(tables: list[str], how: dict[str, object], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        protocol(tables, **how)  # type: ignore[arg-type]


def test_runs_are_read_and_forgotten(tmp_path: Path) -> None:
    specs = [RunSpec("linear", seed=seed) for seed in range(3)]
    for spec in specs[:2]:
        made = RunResult(spec, (Point(300, 2.0, 2.1, 0.2),), 1, 1, 1.0)
        (tmp_path / f"{spec.id}.json").write_text(codec.text(made))
        (tmp_path / f"{spec.id}.safetensors").write_bytes(b"")
    found = stored_runs(tmp_path, specs)
    assert [run.spec for run in found] == specs[:2]
    report = audit_report(protocol(["1"], seeds=3, encoders=["linear"]), found)
    assert (report.runs, report.needed, report.diverged) == (2, 3, 0)
    assert not report.published
    whole = [RunResult(RunSpec("linear", seed=seed), found[0].points, 1, 1, 1.0) for seed in range(20)]
    asked = protocol(["1"], encoders=["linear"])
    assert audit_report(asked, whole).published
    for odd, said in (({"stopped": 120}, "cut short"), ({"precision": "bfloat16"}, "in bfloat16")):
        made = audit_report(asked, [replace(whole[0], **odd), *whole[1:]])
        assert (made.published, made.warning) == (False, f"1 of 20 runs: {said}.")
    runs.forget_runs(tmp_path, specs[:1])
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{specs[1].id}{s}" for s in (".json", ".safetensors")]
    (tmp_path / f"{specs[1].id}.json").write_text("[]")
    with pytest.raises(DataError, match=specs[1].id):
        stored_runs(tmp_path, specs)


RESULTS = Path(__file__).parents[3] / "benchmarks/results/lab/encoders"
PAGE = Path(__file__).parents[3] / "docs/lab/encoders.md"
SIX = ["sum", "concat", "linear", "linear-ortho", "mlp", "linear-ppe"]


def stored_report(tables: list[str], seeds: int = 5) -> AuditReport:
    asked = protocol(tables, seeds=seeds, encoders=SIX)
    return audit_report(asked, stored_runs(RESULTS, audit_runs(asked)))


def test_the_page_states_the_counts_of_the_stored_runs() -> None:
    report = stored_report(["1", "5", "8", "9", "10", "11", "13"])
    verdicts = [row.verdict for row in report.counted]
    tested = [row for row in report.counted if row.p is not None]
    clear = [row for row in tested if row.p is not None and row.p < 0.05]
    numbers = [verdicts.count(one) for one in ("within", "within 2", "inside", "outside")]
    assert sum(numbers) == len(verdicts)
    page = PAGE.read_text(encoding="utf-8")
    assert f"constants and repeats {len(verdicts)} numbers" in page
    assert (
        "{} are within one standard deviation, {} within two, {} inside a printed interval and {} outside".format(
            *numbers
        )
        in page
    )
    assert f"For {len(tested)} of them" in page
    assert f"finds {len(clear)} of those different" in page
    adjusted = [row.adjusted for row in tested if row.adjusted is not None]
    assert f"(least: {min(adjusted):.3f})" in page
    # Holm, by its definition
    least = min(row.p for row in tested if row.p is not None)
    assert min(adjusted) == pytest.approx(len(tested) * least)


def test_every_mean_of_tables_1_and_6_is_within_the_published_spread() -> None:
    rows = stored_report(["1"]).tables[0].rows
    judged = [row for row in rows if row.measure in ("nll", "accuracy")]
    assert {row.encoder for row in judged} == set(SIX)
    assert {row.verdict for row in judged} == {"within"}
    asked = protocol(["6"], seeds=3, encoders=["mlp"])
    table = audit_report(asked, stored_runs(RESULTS, audit_runs(asked))).tables[0]
    assert {row.verdict for row in table.rows if row.counted} == {"within"}
    (etth1,) = stored_report(["13"]).tables
    losses = [row for row in etth1.rows if row.measure == "nll"]
    assert [row.verdict for row in losses].count("within") == len(losses) - 1
    assert {row.verdict for row in losses} == {"within", "within 2"}


def test_constants_and_repeats_do_not_count() -> None:
    alone, both = stored_report(["1"]), stored_report(["1", "2"])
    assert {row.measure for row in alone.counted} == {"nll", "accuracy"}
    assert not any(row.counted for row in both.tables[1].rows if row.setting == "C=4")
    assert len(both.counted) > len(alone.counted) == 12
    fixed = [row for row in stored_report(["11"]).tables[0].rows if row.encoder == "linear"]
    assert any(row.verdict and not row.counted for row in fixed)  # positions that are not trained
