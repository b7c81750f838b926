"""Fig. 5, 12, 13: weights and inputs of the layers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rankscope import measure_flow, measure_spectrum, open_checkpoint
from rankscope.errors import DataError
from rankscope.io import codec
from rankscope_paper.figures import FIGURES, Settings, draw
from rankscope_paper.figures.layers import TRAINED


def sigma_of(folder: Path, layer: int, name: str = "layer.0.SelfAttention.q") -> np.ndarray:
    weight = open_checkpoint(folder).tensor(f"encoder.block.{layer}.{name}.weight").double().numpy()
    return np.linalg.svd(weight, compute_uv=False)


@pytest.mark.parametrize("number", ["5a", "5b"])
def test_ranks_by_layer(number: str, t5_folder: Path) -> None:
    (drawn,) = draw(FIGURES[number], Settings(models=(str(t5_folder),)))
    ranks = [int((sigma > 0.1 * sigma[0]).sum()) for sigma in (sigma_of(t5_folder, layer) for layer in range(2))]
    queries = drawn.frame[(drawn.frame["role"] == "self.q") & (drawn.frame["stack"] == "encoder")]
    assert queries["eps_rank@0.1"].tolist() == ranks
    assert f"first layer to last: {ranks[0]}, {ranks[1]} of 8" in drawn.caption
    assert "ε = 0.1" in drawn.caption


def test_the_flow_needs_an_encoder() -> None:
    with pytest.raises(DataError, match="bundled-timesfm: figure 5c needs the layers of an encoder"):
        draw(FIGURES["5c"], Settings(models=("bundled-timesfm",), quick=True))


def test_the_flow_of_a_constant_signal(chronos_t5_folder: Path, tmp_path: Path) -> None:
    (drawn,) = draw(FIGURES["5c"], Settings(models=(str(chronos_t5_folder),), quick=True))
    inputs = drawn.frame[(drawn.frame["quantity"] == "relative_sigma") & (drawn.frame["layer"] == 0)]
    # the constant and the end-of-sequence token: two vectors, so rank two
    assert (inputs["value"] > 1e-9).sum() == 2
    report = measure_flow(open_checkpoint(chronos_t5_folder), "constant", n=1, length=128, eps=(0.1, 0.01))
    file = tmp_path / "flow.json"
    file.write_text(json.dumps(codec.plain(report)))
    (saved,) = draw(FIGURES["5c"], Settings(data=tmp_path))
    pd.testing.assert_frame_equal(saved.frame, drawn.frame)
    assert "as saved in" in saved.caption


def test_histograms_hold_every_singular_value(t5_folder: Path, bolt_folder: Path) -> None:
    (drawn,) = draw(FIGURES["12"], Settings(models=(str(t5_folder), str(bolt_folder))))
    frame = drawn.frame
    for matrix, name in (("W_Q", "layer.0.SelfAttention.q"), ("W_MLP", "layer.1.DenseReluDense.wi")):
        sigma = sigma_of(t5_folder, 1, name)
        ours = frame[(frame["model"] == str(t5_folder)) & (frame["layer"] == 1) & (frame["matrix"] == matrix)]
        np.testing.assert_allclose(ours["relative_sigma"], sigma / sigma[0], atol=1e-6)
    spectra = [sigma_of(bolt_folder, layer) for layer in range(2)]
    share = np.concatenate([sigma / sigma[0] > 0.1 for sigma in spectra]).mean()
    assert f"{bolt_folder} W_Q {share:.0%}" in drawn.caption


def test_spectra_of_a_training(tmp_path: Path) -> None:
    rows = [
        (step, "q", "encoder", layer, "self.q", index, (1 + step) * 0.5**index)
        for step in (0, 7)
        for layer in (0, 1)
        for index in range(5)
    ]
    columns = ["step", "site", "stack", "layer", "role", "index", "sigma"]
    pd.DataFrame(rows, columns=columns).to_parquet(tmp_path / "spectra.parquet")
    (drawn,) = draw(FIGURES["13"], Settings(data=tmp_path))
    assert "σ_1 over the layers: 1 to 1 after step 0, 8 to 8 after step 7" in drawn.caption
    assert len(drawn.frame) == len(rows)
    (carried,) = draw(FIGURES["13"], Settings())
    assert carried.frame["step"].nunique() == 4
    other = tmp_path / "x.parquet"
    other.write_text("no table")
    with pytest.raises(DataError, match="is not a Parquet file"):
        draw(FIGURES["13"], Settings(data=other))


def test_the_carried_spectra_end_where_the_model_that_the_caption_names_is() -> None:
    """The weights are stored in bfloat16; another model's, or those of an earlier step, are off by a tenth and more."""
    (drawn,) = draw(FIGURES["13"], Settings())
    assert f"Measured on {TRAINED} (" in drawn.caption
    checkpoint = open_checkpoint(TRAINED)
    record = drawn.frame[drawn.frame["step"] == drawn.frame["step"].max()]
    rows = measure_spectrum(checkpoint, (0.1,), ("encoder", "q")).sites
    assert {row.site.name for row in rows} == set(record["site"])
    for row in rows:
        last = record[record["site"] == row.site.name].sort_values("index")["sigma"]
        assert row.sigma is not None
        np.testing.assert_allclose(last, row.sigma, rtol=0, atol=1e-3 * row.sigma[0])


def test_a_model_without_an_encoder(chronos_t5_folder: Path, monkeypatch) -> None:
    from rankscope.measure.spectrum import SpectrumReport

    nothing = SpectrumReport("x", "t5", (0.1,), False, ())
    monkeypatch.setattr("rankscope_paper.figures.layers.measure_spectrum", lambda *args, **options: nothing)
    for number in ("5a", "12"):
        with pytest.raises(DataError, match="has no encoder with a W_Q"):
            draw(FIGURES[number], Settings(models=(str(chronos_t5_folder),)))


@pytest.mark.parametrize("number", ["1", "14", "start-end"])
def test_a_model_that_has_a_decoder_alone(number: str) -> None:
    with pytest.raises(DataError, match=r"bundled-time-moe.* encoder with a W_Q"):
        draw(FIGURES[number], Settings(models=("bundled-time-moe",), quick=number == "1"))


def test_models_of_one_name_have_a_map_each(
    tiny_config: Callable[..., Any], write_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    models = tuple(
        str(write_checkpoint(tmp_path / run / "final", tiny_config("chronos-t5"))) for run in ("first", "second")
    )
    (drawn,) = draw(FIGURES["14"], Settings(models=models))
    assert len(set(drawn.frame["model"])) == 2


def test_captions_say_of_how_many_layers_some_are_drawn(
    tiny_config: Callable[..., Any], write_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    deep = write_checkpoint(tmp_path / "deep", tiny_config("t5", num_layers=8))
    (drawn,) = draw(FIGURES["12"], Settings(models=(str(deep),)))
    assert f"(W_MLP) in 6 of 8 encoder layers of {deep}, first" in drawn.caption
    columns = ["step", "site", "stack", "layer", "role", "index", "sigma"]
    rows = [(step, "q", "encoder", layer, "self.q", 0, 1.0) for step in (0, 7) for layer in range(8)]
    pd.DataFrame(rows, columns=columns).to_parquet(tmp_path / "spectra.parquet")
    (drawn,) = draw(FIGURES["13"], Settings(data=tmp_path))
    assert "of W_Q in 6 of 8 encoder layers, at" in drawn.caption
