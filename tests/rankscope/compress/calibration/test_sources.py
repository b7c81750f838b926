"""Sets to calibrate on and to probe with: named for a model, the same every time, apart from one another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rankscope import open_checkpoint
from rankscope.compress import CompressOptions
from rankscope.compress.calibration import calibrate, calibration_for, calibration_set, is_saved, named_set
from rankscope.compress.calibration.passes import with_partners
from rankscope.compress.calibration.sources import PROBE_SEED, cap_note, default_set, probe_set
from rankscope.compress.prepare import prepare
from rankscope.errors import DataError, OptionError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Three series of 40, 9 and 4 values in the wide layout; every value tells its series and its place."""
    rows = [
        ",".join(str(100 * column + row) if row < length else "" for column, length in enumerate((40, 9, 4)))
        for row in range(40)
    ]
    path = tmp_path / "mine.csv"
    path.write_text("a,b,c\n" + "\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("name", ["mixture:3", "kernelsynth:3", " kernelsynth:1 , mixture:2 "])
def test_generated_sets_are_functions_of_the_seed(name: str) -> None:
    first, again = (calibration_set(name, context=24, horizon=8, seed=4) for _ in range(2))
    other = calibration_set(name, context=24, horizon=8, seed=5)
    assert first.context.shape == (3, 24)
    assert first.future.shape == (3, 8)
    assert (first.context.dtype, first.future.dtype, len(first)) == (torch.float32, torch.float32, 3)
    assert first.name == again.name == ",".join(part.strip() for part in name.split(","))
    torch.testing.assert_close(first.context, again.context, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(first.future, again.future, rtol=0, atol=0)
    assert not torch.equal(first.future, other.future)
    assert bool(torch.isfinite(first.future).all())


def test_a_file_gives_the_last_window_of_every_series(file: Path) -> None:
    found = calibration_set(file, context=10, horizon=5)
    assert found.context[0].tolist() == list(range(25, 35))
    assert found.future[0].tolist() == list(range(35, 40))
    assert found.future[1].tolist() == [104, 105, 106, 107, 108]
    assert found.context[1].isnan().tolist() == [True] * 6 + [False] * 4
    assert found.context[1, 6:].tolist() == [100, 101, 102, 103]
    assert len(found) == 2  # the third series is no longer than the horizon


def test_a_number_behind_a_file_draws_windows(file: Path) -> None:
    found = calibration_set(f"{file}:50", context=10, horizon=5, seed=1)
    assert len(found) == 50
    assert torch.equal(found.future, calibration_set(f"{file}:50", context=10, horizon=5, seed=1).future)
    whole = torch.cat([found.context, found.future], dim=1).numpy()
    for row in whole:
        values = row[~np.isnan(row)]
        assert (np.diff(values) == 1).all()  # a window of one series, whole and at the right end
        assert len(values) > 5
        assert not np.isnan(row[-len(values) :]).any()
    assert len({row[-1] for row in whole}) > 10


def test_sets_are_joined(file: Path) -> None:
    found = calibration_set(f"kernelsynth:2,{file}", context=10, horizon=5)
    assert len(found) == 4
    alone = calibration_set(file, context=10, horizon=5)
    torch.testing.assert_close(found.context[2:], alone.context, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "is empty"),
        (" , ", "is empty"),
        ("mixture", "number of series of at least 1"),
        ("mixture:0", "number of series of at least 1"),
        ("kernelsynth:-3", "number of series of at least 1"),
        ("kernelsynth:many", "number of series of at least 1"),
        ("mixture:²", "number of series of at least 1"),
        ("kernelsynt:4", "neither a file nor generated series: did you mean 'kernelsynth'"),
    ],
)
def test_names_that_mean_nothing(name: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        calibration_set(name, context=10, horizon=5)
    assert "\n" not in str(caught.value)


def test_files_that_hold_nothing_to_use(file: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no series longer than the horizon, 40 values"):
        calibration_set(file, context=10, horizon=40)
    with pytest.raises(DataError, match="nowhere"):
        calibration_set(tmp_path / "nowhere.csv", context=10, horizon=5)
    with pytest.raises(DataError, match="sales does not exist"):
        calibration_set("sales:4", context=10, horizon=5)


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


def test_the_length_of_the_histories_can_be_asked_for(bolt_folder: Path) -> None:
    source = open_checkpoint(bolt_folder)
    most = source.family.context(source.config)
    short, whole = named_set(source, "mixture:3@16"), named_set(source, "mixture:3")
    assert (short.name, short.context.shape[1]) == ("mixture:3@16", 16)
    assert (whole.name, whole.context.shape[1]) == ("mixture:3", most)
    assert short.future.shape == whole.future.shape
    for wrong in (15, most + 1):
        with pytest.raises(OptionError, match=f"histories of {wrong} values are not usable, .* reads 16 to {most}"):
            named_set(source, f"mixture:3@{wrong}")


def test_a_file_may_be_called_like_a_length(bolt_folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.rename(file.with_name("mine@16"))
    monkeypatch.chdir(file.parent)
    with pytest.raises(DataError, match="mine@16"):  # read as the file that it is, which has no known ending
        named_set(open_checkpoint(bolt_folder), "mine@16")


def test_a_model_of_longer_histories_says_so(bolt_folder: Path) -> None:
    source = open_checkpoint(bolt_folder)
    assert cap_note(source, "mixture:8") == ()
    inner = {**source.config["chronos_config"], "context_length": 2048}
    longer = replace(source, config={**source.config, "chronos_config": inner})
    (note,) = cap_note(longer, "mixture:8")
    assert "histories of 512 values" in note
    assert "reads 2048: mixture:8@2048 has longer ones" in note
    assert cap_note(longer, "mixture:8@1024") == ()
    assert cap_note(longer, default_set(longer))
    assert named_set(longer, "mixture:2").context.shape[1] == 512
    assert named_set(longer, "mixture:2@2048").context.shape[1] == 2048


def test_the_default_has_a_position_of_the_decoder_for_every_hidden_unit() -> None:
    tokens, patches, bolt = (open_checkpoint(name) for name in ("bundled", "bundled-2", "bundled-bolt"))
    assert [default_set(one) for one in (tokens, patches, bolt)] == ["mixture:256", "mixture:1024", "mixture:1024"]
    wide = replace(bolt, config={**bolt.config, "d_ff": 3072})
    assert (default_set(wide), default_set(wide, probe=True)) == ("mixture:3072", "mixture:128")


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


def test_a_text_is_probed_where_calibration_does_not_look(t5_folder: Path, ids: Path) -> None:
    checkpoint = open_checkpoint(t5_folder)
    prepared = prepare(checkpoint, CompressOptions(method="joint", calibration=f"text:{ids}:4", seed=5))
    assert prepared.calibration is not None
    assert prepared.calibration.settings.series == 4
    probe = probe_set(checkpoint, prepared.how)
    assert len(probe) == 32
    expected = named_set(checkpoint, f"text:{ids}:32", seed=5 + PROBE_SEED, probe=True)
    assert torch.equal(probe.context, expected.context)
    named = CompressOptions(method="joint", calibration=f"text:{ids}:4", probe=f"text:{ids}:3", seed=5)
    assert len(probe_set(checkpoint, named)) == 3


@pytest.mark.usefixtures("untyped")
def test_what_the_decoder_read_has_to_be_what_was_asked_for(chronos_t5_folder: Path, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(chronos_t5_folder)
    given = calibration_set("kernelsynth:4", context=32, horizon=8)
    saved = calibrate(checkpoint, given, file=tmp_path / "moments")
    for source in (saved, tmp_path / "moments", str(tmp_path / "moments")):
        for decoder in (None, "teacher"):
            found = calibration_for(checkpoint, checkpoint.sites(), source, decoder=decoder)
            assert found.settings == saved.settings
        with pytest.raises(OptionError, match="made with decoder teacher, not sampled"):
            calibration_for(checkpoint, checkpoint.sites(), source, decoder="sampled")
    with pytest.raises(OptionError, match="did you mean 'sampled'"):
        CompressOptions(decoder="samplde")


def test_a_text_model_is_probed_with_the_text_however_it_is_given(t5_folder: Path, ids: Path, tmp_path: Path) -> None:
    source = open_checkpoint(t5_folder)
    named = CompressOptions(ratio=0.9, calibration=f"text:{ids}:8")
    expected = probe_set(source, named)
    whole = named_set(source, named.calibration)
    moments = calibrate(source, whole, file=tmp_path / "moments.safetensors")
    for given in (whole, moments, tmp_path / "moments.safetensors"):
        found = probe_set(source, replace(named, calibration=given))
        assert torch.equal(found.context, expected.context)
