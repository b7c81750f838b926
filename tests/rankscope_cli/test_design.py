"""``rankscope design``: its table, its document, what it writes, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankscope.train import read_config

LAYER = {
    "stack",
    "layer",
    "part",
    "rank",
    "dense",
    "parameters_before",
    "parameters_after",
    "cache_ratio",
    "size_ratio",
}


@pytest.fixture
def stock(tmp_path: Path, write_checkpoint: Callable[..., Path], tiny_config: Callable[..., Any]) -> Path:
    """A random Chronos-T5 of even depth: heads of width 4 in both stacks."""
    return write_checkpoint(tmp_path / "stock", tiny_config("chronos-t5", num_decoder_layers=2))


def test_document(document: Any, stock: Path, tmp_path: Path) -> None:
    found = document("design", stock, "--r0", 1, "--alpha", "0.5", "--out", tmp_path / "low")
    assert found["schema"] == "rankscope/design@1"
    assert found["design"] == {
        "r0": 1.0, "alpha": 0.5, "schedule": "ceil", "cross_depth": "restart", "layout": "head-width",
        "sketch": "per-head", "mlp": False,
    }  # fmt: skip
    assert [row["rank"] for row in found["layers"]] == [1, 2, 1, 1, 2, 2]
    assert all(row.keys() == LAYER for row in found["layers"])
    assert found["size_ratio"] == found["cache_ratio"] == 1.5 / 4
    assert found["attention_parameters"] == {"before": 6 * 4 * 16 * 8, "after": 9 * 4 * 16 * 2}
    assert found["not_kept"] == []
    assert found["out"] == str(tmp_path / "low")
    assert json.loads((tmp_path / "low" / "design.json").read_text()) == found


def test_every_option_reaches_the_run(document: Any, stock: Path, tmp_path: Path) -> None:
    document(
        "design", stock, "--r0", "1.5", "--alpha", "0.1", "--schedule", "pow2", "--cross-depth", "continue",
        "--layout", "factored", "--sketch", "shared", "--mlp", "--embedding", "inherit", "--freeze-embedding",
        "--seed", 5, "--dtype", "bfloat16", "--out", tmp_path / "low",
    )  # fmt: skip
    run = read_config(tmp_path / "low" / "pretrain.yaml")
    assert run.low_rank is not None
    assert list(vars(run.low_rank).values()) == [1.5, 0.1, "pow2", "continue", "factored", "shared", True]
    assert vars(run.embedding) == {"source": "inherit", "model": str(stock), "rank": 0, "frozen": True, "rate": 1.0}
    assert (run.seed, run.precision) == (5, "bf16")


def test_table(cli: Any, stock: Path, tmp_path: Path) -> None:
    result = cli("design", stock, "--r0", 1, "--alpha", "0.5", "--mlp", "--out", tmp_path / "low")
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["dec", "1", "cross-attention", "2", "512", "256", "0.500", "0.500"] in rows
    assert ["enc", "1", "mlp", "4", "768", "320", "0.417", "–"] in rows
    assert any(row[:1] == ["attention"] and row[-2:] == ["0.375", "0.375"] for row in rows)
    assert f"rankscope pretrain {tmp_path / 'low' / 'pretrain.yaml'} --out" in result.stdout


def test_a_matrix_that_stays_dense_is_said(cli: Any, stock: Path, tmp_path: Path) -> None:
    """3 of 4 in two heads of a 8×16 matrix: 120 of 128 numbers; 4 of them would be more."""
    result = cli("design", stock, "--r0", 3, "--alpha", "0.3", "--layout", "factored", "--out", tmp_path / "low")
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["enc", "0", "self-attention", "3", "512", "480", "0.938", "–"] in rows
    assert ["enc", "1", "self-attention", "–", "512", "512", "1.000", "–"] in rows


def test_settings_that_a_run_cannot_keep_are_said(
    cli: Any, tmp_path: Path, write_checkpoint: Callable[..., Path], tiny_config: Callable[..., Any]
) -> None:
    config = tiny_config("chronos-t5", num_decoder_layers=2)
    config["chronos_config"]["num_samples"] = 7
    result = cli("design", write_checkpoint(tmp_path / "odd", config), "--r0", 1, "--out", tmp_path / "low")
    assert result.exit_code == 0
    assert "not carried over to the pretraining config: chronos_config.num_samples: 7 → 20" in result.stderr


def test_what_is_designed_can_be_trained_at_once(cli: Any, document: Any, tmp_path: Path, stock: Path) -> None:
    document("design", stock, "--r0", 1, "--out", tmp_path / "low")
    file = tmp_path / "low" / "pretrain.yaml"
    file.write_text(
        file.read_text()
        .replace("max_steps: 200000", "max_steps: 2")
        .replace("batch_size: 32", "batch_size: 4")
        .replace("bank_kernels: 500", "bank_kernels: 0")
    )
    assert document("pretrain", tmp_path / "low", "--out", tmp_path / "trained", "--device", "cpu")["steps"] == 2
    sites = document("spectrum", tmp_path / "trained", "--eps", "0.1")["sites"]
    assert [site["shape"] for site in sites[:4]] == [[2, 16], [2, 16], [2, 16], [16, 2]]
    assert {site["layout"] for site in sites} == {"head-width"}


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("--r0", "5"), "above the head width 4: lower r0"),
        (("--r0", "0"), "low_rank.r0 is 0.0"),
        (("--r0", "x"), "--r0"),
        (("--alpha", "nan"), "alpha"),
        (("--sketch", "shared"), "requires --layout factored, not head-width"),
        (("--freeze-embedding",), "requires --embedding inherit"),
        (("--device", "cuda"), "on the CPU"),
    ],
)
def test_bad_options(refused: Any, stock: Path, tmp_path: Path, args: tuple[str, ...], part: str) -> None:
    assert part in refused("design", stock, "--out", tmp_path / "low", *args)
    assert not (tmp_path / "low").exists()


def test_bad_models(refused: Any, tmp_path: Path, chronos2_folder: Path, t5_folder: Path, stock: Path) -> None:
    low = tmp_path / "low"
    assert "chronos-t5, chronos-bolt, chronos-2 only" in refused("design", t5_folder, "--out", low)
    assert "rotary positions" in refused("design", chronos2_folder, "--out", low)
    assert "no such folder" in refused("design", tmp_path / "nowhere", "--out", low)
    (stock / "model.safetensors").unlink()
    assert "model.safetensors" in refused("design", stock, "--r0", 1, "--embedding", "inherit", "--out", low)
    assert not low.exists()
    (stock / "config.json").write_text("{}")
    assert "no known model family" in refused("design", stock, "--out", low)


def test_nothing_is_overwritten(refused: Any, cli: Any, stock: Path, tmp_path: Path) -> None:
    (tmp_path / "low").mkdir()
    (tmp_path / "low" / "mine").write_text("kept")
    assert "exists already" in refused("design", stock, "--r0", 1, "--out", tmp_path / "low")
    assert "holds 'mine'" in refused("design", stock, "--r0", 1, "--out", tmp_path / "low", "--force")
    assert (tmp_path / "low" / "mine").read_text() == "kept"
    (tmp_path / "low" / "mine").unlink()
    assert cli("design", stock, "--r0", 1, "--out", tmp_path / "low", "--force").exit_code == 0
    assert sorted(file.name for file in (tmp_path / "low").iterdir()) == ["config.json", "design.json", "pretrain.yaml"]


def test_bundled_is_the_default(document: Any, tmp_path: Path) -> None:
    found = document("design", "--out", tmp_path / "low")
    assert (found["model"], found["family"], found["recipe"]) == ("bundled", "chronos-t5", "pretrain.json")
