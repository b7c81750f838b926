"""Which moments and which probe a compression uses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rankscope import open_checkpoint
from rankscope.compress import CompressOptions
from rankscope.compress.calibration import calibrate, calibration_for, calibration_set, named_set
from rankscope.compress.prepare import prepare
from rankscope.compress.probe import PROBE_SEED, probe_set
from rankscope.errors import OptionError


@pytest.fixture
def ids(tmp_path: Path) -> Path:
    """3,000 token ids at random."""
    file = tmp_path / "ids.txt"
    generator = torch.Generator().manual_seed(3)
    file.write_text(" ".join(map(str, torch.randint(2, 64, (3000,), generator=generator).tolist())))
    return file


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
