"""Inputs that once ended in a traceback, or in none for minutes: each is refused in one line, at once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankscope.choices import LARGEST_SEED

Refused = Callable[..., str]

T5 = {"model_type": "t5", "d_model": 16, "d_kv": 8, "d_ff": 32, "num_heads": 2, "num_layers": 2, "vocab_size": 64}
INFORMER = {
    "model_type": "informer", "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "prediction_length": 4,
    "context_length": 8, "feature_size": 12, "lags_sequence": [1, 2],
}  # fmt: skip
AUTOFORMER = INFORMER | {"model_type": "autoformer"}
PATCHTST = {
    "model_type": "patchtst", "d_model": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 32,
    "patch_length": 8, "num_input_channels": 1,
}  # fmt: skip
APART = PATCHTST | {"share_embedding": False}
TOTEM = {"model_type": "totem", "hidden": 16, "residual_hidden": 8, "residual_layers": 1, "codes": 8, "d_model": 4}
UNSIZED = {name: value for name, value in INFORMER.items() if name != "feature_size"}
BART = {"model_type": "bart", "d_model": 16, "decoder_layers": 2_000_000}
INFINITE = float("inf")

CONFIGS: dict[str, dict[str, Any]] = {
    "decoder layers": INFORMER | {"decoder_layers": 2_000_000},
    "encoder layers": AUTOFORMER | {"encoder_layers": 2_000_000},
    "decoder layers of another family": BART,
    "hidden layers": PATCHTST | {"num_hidden_layers": 2_000_000},
    "hidden layers of another family": {"model_type": "other", "num_hidden_layers": 2_000_000},
    "layers": T5 | {"num_layers": 2_000_000},
    "decoder layers of T5": T5 | {"num_decoder_layers": 2_000_000},
    "residual layers": TOTEM | {"residual_layers": 2_000_000},
    "channels": APART | {"num_input_channels": 2**31 - 1},
    "more channels": APART | {"num_input_channels": 2**31},
    "compression": TOTEM | {"compression": 2**30},
    "compression that is not a power": TOTEM | {"compression": 2**30 + 1},
    "no architecture": {"model_type": "other", "architectures": []},
    "infinite width": INFORMER | {"d_model": INFINITE},
    "infinite layers": INFORMER | {"encoder_layers": INFINITE},
    "infinite features": INFORMER | {"feature_size": INFINITE},
    "infinite lags": UNSIZED | {"lags_sequence": [INFINITE]},
    "infinite time features": UNSIZED | {"num_time_features": INFINITE},
    "infinite dimensions": UNSIZED | {"embedding_dimension": [INFINITE]},
    "a number for dimensions": UNSIZED | {"embedding_dimension": 5},
    "text for dimensions": UNSIZED | {"embedding_dimension": ["x"]},
    "text for time features": UNSIZED | {"num_time_features": "x"},
    "a list for time features": UNSIZED | {"num_time_features": [1]},
}


@pytest.mark.parametrize("case", CONFIGS)
def test_config(refused: Refused, chronos_t5_folder: Path, case: str) -> None:
    (chronos_t5_folder / "config.json").write_text(json.dumps(CONFIGS[case]))
    refused("spectrum", chronos_t5_folder / "nowhere")  # imports take their time
    begun = time.process_time()
    assert str(chronos_t5_folder) in refused("spectrum", chronos_t5_folder)
    assert time.process_time() - begun < 5


DIGITS = "9" * 4301
SUITES: dict[str, str] = {
    "an impossible date": "- {name: 2024-13-45, file: a.csv, prediction_length: 2}",
    "an impossible date as a number": "- {name: a, file: a.csv, prediction_length: 2024-13-45}",
    "brackets": "[" * 3000,
    "a tag": "!!int x",
    "a tag inside": "- {name: a, file: a.csv, prediction_length: !!int x}",
    "4301 digits": f"- {{name: a, file: a.csv, prediction_length: {DIGITS}}}",
    "4301 digits alone": DIGITS,
    "a list for a name": "- {name: [a], file: a.csv, prediction_length: 2}",
    "a mapping for a name": "- {name: {a: b}, file: a.csv, prediction_length: 2}",
    "a list for a file": "- {name: a, file: [a.csv], prediction_length: 2}",
    "a mapping for a file": "- {name: a, file: {a: b}, prediction_length: 2}",
    "a long path": f"- {{name: a, file: {'a' * 9999}, prediction_length: 2}}",
    "a surrogate": '- {name: "\\ud800", file: a.csv, prediction_length: 2}',
    "a surrogate in a file": '- {name: a, file: "\\ud800.csv", prediction_length: 2}',
    "a list as a key": "- {[a]: b}",
}


@pytest.mark.parametrize("case", SUITES)
def test_suite(refused: Refused, monthly_csv: Path, case: str) -> None:
    suite = monthly_csv.with_name("suite.yaml")
    suite.write_text(SUITES[case] + "\n")
    assert refused("eval", "naive", "--suite", suite, "--data", monthly_csv.parent).startswith("error: ")


RUNS: dict[str, str] = {
    "an impossible date": "family: 2024-13-45",
    "an impossible date as a number": "seed: 2024-13-45",
    "brackets": "[" * 3000,
    "a tag": "seed: !!int x",
    "4301 digits": f"seed: {DIGITS}",
    "a list for a name": "family: [chronos-t5]",
    "a mapping for a name": "family: {a: b}",
    "a long path": f"family: chronos-t5\nshards: {'a' * 9999}",
    "a surrogate": 'family: "\\ud800"',
    "a surrogate in a path": 'family: chronos-t5\nshards: "\\ud800"',
}


@pytest.mark.parametrize("case", RUNS)
def test_run(refused: Refused, tmp_path: Path, case: str) -> None:
    (tmp_path / "run.yaml").write_text(RUNS[case] + "\n")
    refused("pretrain", tmp_path / "run.yaml", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("spectrum", "a" * 9999),
        ("pretrain", "a" * 9999, "--out", "out"),
        ("eval", "naive", "--suite", "a" * 9999),
        ("forecast", "naive", "--input", "a" * 9999, "--horizon", 2),
        ("forecast", "naive", "--input", "\ud800.csv", "--horizon", 2),
        ("spectrum", "\ud800"),
    ],
    ids=lambda words: f"{words[0]} {'path' if 'a' * 9999 in words else 'surrogate'}",
)
def test_path(refused: Refused, words: tuple[Any, ...]) -> None:
    assert refused(*words).startswith("error: ")


@pytest.mark.parametrize("seed", [LARGEST_SEED + 1, 2**64])
@pytest.mark.parametrize(
    "words",
    [
        ("forecast", "bundled", "--input", "no.csv", "--horizon", 2),
        ("figures", 15, "--out", "out"),
        ("theory", "--quick"),
        ("pretrain", "bundled", "--out", "out"),
    ],
    ids=lambda words: words[0],
)
def test_seed(refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: Any, seed: int) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(LARGEST_SEED) in refused(*words, "--seed", seed)


@pytest.mark.parametrize("header", ["date,a,a", "date,date,a", "item_id,date,target,target", "item_id,item_id,date,a"])
def test_columns_twice(refused: Refused, tmp_path: Path, header: str) -> None:
    cells = ["x" if name == "item_id" else "{}" if name == "date" else "1" for name in header.split(",")]
    rows = [",".join(cells).replace("{}", f"2020-{month:02d}-01") for month in range(1, 13)]
    file = tmp_path / "twice.csv"
    file.write_text("\n".join([header, *rows]) + "\n")
    assert "twice.csv" in refused("forecast", "naive", "--input", file, "--horizon", 2)
