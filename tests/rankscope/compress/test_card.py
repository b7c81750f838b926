"""The model card of a folder: metadata that the hub's own reader takes, numbers of its reports, code that runs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from huggingface_hub import ModelCard

from rankscope import open_checkpoint
from rankscope.compress import CompressOptions, compress, compress_to_loss
from rankscope.compress.card import CARD, write_card
from rankscope.compress.heal import HealConfig, heal
from rankscope.series import Columns

FEW = {"calibration": "mixture:8", "probe": "mixture:4"}


def blocks(card: ModelCard, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", card.text, re.DOTALL)


def run(code: str) -> dict[str, object]:
    names: dict[str, object] = {}
    exec(code, names)
    return names


@pytest.mark.parametrize("method", ["joint", "stream"])
def test_sizes_are_those_of_the_report_and_the_code_loads_the_folder(
    method: str, bolt_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = compress(bolt_folder, CompressOptions(ratio=0.8, method=method, **FEW), out=tmp_path / "small")
    card = ModelCard.load(tmp_path / "small" / CARD)
    assert card.data.library_name == "chronos-forecasting"
    assert card.data.pipeline_tag == "time-series-forecasting"
    assert card.data.base_model is None  # a folder is not a model of the hub
    for counts in (report.parameters, report.bytes):
        before, after = counts["before"], counts["after"]
        assert f"| {before:,} | {after:,} | {after / before:.3f} |" in card.text
    monkeypatch.chdir(tmp_path)
    (code,) = blocks(card, "python")
    pipeline = run(code)["pipeline"]
    assert sum(one.numel() for one in pipeline.model.parameters()) == report.parameters["after"]


def test_a_model_of_the_hub_is_named_to_it(bolt_folder: Path, tmp_path: Path) -> None:
    source = replace(open_checkpoint(bolt_folder), source="amazon/chronos-bolt-tiny")
    compress(source, CompressOptions(eps=0.1), out=tmp_path / "small")
    assert ModelCard.load(tmp_path / "small" / CARD).data.base_model == "amazon/chronos-bolt-tiny"


def test_a_text_model_is_no_forecaster(t5_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compress(t5_folder, CompressOptions(eps=0.1), out=tmp_path / "small")
    card = ModelCard.load(tmp_path / "small" / CARD)
    assert card.data.library_name == "transformers"
    assert "rankscope eval" not in card.text
    monkeypatch.chdir(tmp_path)
    (code,) = blocks(card, "python")
    assert type(run(code)["model"]).__name__ == "LowRankT5ForConditionalGeneration"


def test_a_search_says_what_was_measured(bolt_folder: Path, tmp_path: Path) -> None:
    options = CompressOptions(**FEW)
    found = compress_to_loss(bolt_folder, options, out=tmp_path / "found", max_loss=0.3, score=lambda _: 1.25, steps=1)
    assert f"{found.search.measure}: 1.2500, at most 1.3 was allowed." in (tmp_path / "found" / CARD).read_text()
    assert "# found\n" in (tmp_path / "found" / CARD).read_text()


@pytest.mark.slow
def test_every_healing_has_its_line(bolt_folder: Path, tmp_path: Path) -> None:
    compress(bolt_folder, CompressOptions(eps=0.3), out=tmp_path / "small")
    (tmp_path / "my sales.csv").write_text(
        "shop,time,sold\n" + "".join(f"a,{day:%Y-%m-%d},{day.day}\n" for day in pd.date_range("2024-01-01", periods=99))
    )
    columns, files = Columns(id="shop", target="sold"), (str(tmp_path / "my sales.csv"),)
    first = HealConfig(steps=2, batch_size=4, files=files, columns=columns, precision="fp32")
    heal(tmp_path / "small", bolt_folder, first, out=tmp_path / "once", device="cpu")
    heal(tmp_path / "once", bolt_folder, HealConfig(steps=3, batch_size=4), out=tmp_path / "twice", device="cpu")
    card = (tmp_path / "twice" / CARD).read_text()
    assert re.findall(r"Healed by distillation from `.*`: (\d+) steps", card) == ["2", "3"]
    assert "# twice\n" in card
    how = f"--teacher {bolt_folder} --steps"
    line = next(line for line in card.splitlines() if line.startswith(f"$ rankscope heal twice-again {how} 2"))
    assert f"--input '{files[0]}'" in line
    assert line.endswith(
        "--dtype float32 --batch-size 4 --id-column shop --target-column sold --out twice-again-healed"
    )
    assert f"$ rankscope heal twice-again-healed {how} 3 --batch-size 4 --out twice-again-healed-healed\n" in card
    report = json.loads((tmp_path / "twice/heal.json").read_text())
    del report["earlier"][0]["options"]["freq"]  # an option of later releases
    (tmp_path / "twice/heal.json").write_text(json.dumps(report))
    write_card(tmp_path / "twice", tmp_path / "twice")
    assert (tmp_path / "twice" / CARD).read_text() == card
