"""Sets by name for one model: series for forecasters, windows of a text for text models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rankscope import open_checkpoint
from rankscope.compress.calibration import is_saved, named_set
from rankscope.compress.calibration.sources import with_partners
from rankscope.errors import DataError, OptionError


@pytest.fixture
def ids(tmp_path: Path) -> Path:
    """3,000 token ids, of which no two windows are alike."""
    generator = torch.Generator().manual_seed(3)
    file = tmp_path / "ids.txt"
    file.write_text(" ".join(map(str, torch.randint(2, 64, (3000,), generator=generator).tolist())))
    return file


def places(windows: torch.Tensor, file: Path) -> list[int]:
    """Where each window begins in the text."""
    text = [int(word) for word in file.read_text().split()]
    rows = [row.long().tolist() for row in windows]
    return [next(i for i in range(len(text)) if text[i : i + len(row)] == row) for row in rows]


def test_series_at_the_lengths_of_the_model(bolt_folder: Path) -> None:
    found = named_set(open_checkpoint(bolt_folder), "kernelsynth:3", seed=1)
    assert (found.name, found.context.shape, found.future.shape) == ("kernelsynth:3", (3, 32), (3, 8))
    assert not torch.equal(found.context, named_set(open_checkpoint(bolt_folder), "kernelsynth:3", seed=2).context)


def test_windows_of_a_text(t5_folder: Path, ids: Path) -> None:
    checkpoint, name = open_checkpoint(t5_folder), f"text:{ids}:40"
    found = named_set(checkpoint, name, seed=4)
    assert (found.name, len(found)) == (name, 40)
    assert (found.context.shape, found.future.shape) == ((40, 256), (40, 64))
    begins = places(torch.cat([found.context, found.future], dim=1), ids)
    assert max(begins) + 320 <= 3000 * 3 // 8
    assert len(named_set(checkpoint, f"text:{ids}")) == 256
    assert len(named_set(checkpoint, f"text:{ids}", count=5)) == 5
    assert torch.equal(named_set(checkpoint, name, seed=4).context, found.context)


def test_a_probe_shares_no_token_with_calibration_nor_with_what_is_scored(t5_folder: Path, ids: Path) -> None:
    probe = named_set(open_checkpoint(t5_folder), f"text:{ids}:30", probe=True)
    begins = places(torch.cat([probe.context, probe.future], dim=1), ids)
    assert min(begins) >= 3000 * 3 // 8
    assert max(begins) + 320 <= 1500


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (None, "which reads text: calibrate it on text:FILE"),
        ("mixture:8", "which reads text"),
        ("text:", "names no text"),
        ("text:256", "names no text: write text:FILE"),
        ("text:FILE:0", "names no text"),
        ("text:nowhere.txt", "nowhere.txt cannot be read: No such file"),
        ("text:SHORT", "too short: 0.375 of it has 37 tokens, one window 320"),
    ],
)
def test_what_a_text_model_refuses(
    source: str | None, message: str, t5_folder: Path, ids: Path, tmp_path: Path
) -> None:
    short = tmp_path / "short.txt"
    short.write_text("5 " * 100)
    word = None if source is None else source.replace("FILE", str(ids)).replace("SHORT", str(short))
    with pytest.raises((OptionError, DataError), match=message) as caught:
        named_set(open_checkpoint(t5_folder), word)
    assert "\n" not in str(caught.value)


def test_a_forecaster_reads_no_text(bolt_folder: Path, ids: Path) -> None:
    with pytest.raises(OptionError, match=r"reads series, and .* is a text"):
        named_set(open_checkpoint(bolt_folder), f"text:{ids}")


def test_partners_are_the_rest_of_an_attention(bolt_folder: Path) -> None:
    checkpoint = open_checkpoint(bolt_folder)
    (one,) = [site for site in checkpoint.sites(["q"]) if site.stack == "encoder" and site.layer == 1]
    assert [site.role for site in with_partners(checkpoint, [one])] == ["self.q", "self.k", "self.v", "self.o"]
    wi = next(site for site in checkpoint.sites(["mlp"]) if site.role == "mlp_out")
    assert {site.role for site in with_partners(checkpoint, [wi])} == {"mlp_in", "mlp_out"}


def test_saved_moments_are_told_by_content(bolt_folder: Path, tmp_path: Path) -> None:
    moments = tmp_path / "moments"
    moments.write_bytes((bolt_folder / "model.safetensors").read_bytes())
    table = tmp_path / "series.csv"
    table.write_text("date,a\n2020-01-01,1\n")
    listed = tmp_path / "series.jsonl"
    listed.write_text('{"target": [1, 2, 3]}\n')
    assert is_saved(moments)
    assert is_saved("absent.safetensors")
    assert not any(is_saved(one) for one in (table, listed, tmp_path, "mixture:256", "nowhere", "\0"))
