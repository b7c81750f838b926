"""Series, text and image models in one report, each on what it reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.errors import DataError, OptionError
from rankscope.io import codec
from rankscope.measure.embedding import EmbeddingReport, measure_embedding
from rankscope.measure.flow import measure_flow
from rankscope.numerics import angle_matrix
from rankscope.series.images import images
from rankscope.series.signals import corpus
from rankscope.series.text import BYTE_OFFSET

TEXT = "It was the best of times, it was the worst of times. " * 9


@pytest.fixture
def text_model(tmp_path: Path, write_checkpoint: Callable[..., Path], tiny_config: Callable[..., Any]) -> Checkpoint:
    return open_checkpoint(write_checkpoint(tmp_path / "text", tiny_config("t5", vocab_size=300)))


@pytest.fixture
def image_model(tmp_path: Path) -> Checkpoint:
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, image_size=16, patch_size=4
    )
    ViTModel(config).save_pretrained(str(tmp_path / "vit"))
    return open_checkpoint(tmp_path / "vit")


@pytest.fixture
def book(tmp_path: Path) -> Path:
    file = tmp_path / "book.txt"
    file.write_text(TEXT)
    return file


def test_every_modality_in_one_report(
    chronos_t5_folder: Path, text_model: Checkpoint, image_model: Checkpoint, book: Path
) -> None:
    series_model = open_checkpoint(chronos_t5_folder)
    report = measure_embedding(
        [series_model, text_model, image_model], "mixed", n=4, length=20, text=book, image_count=5, batch_size=3
    )
    assert [(row.modality, row.matrix, row.tokens) for row in report.rows] == [
        ("series", "corpus", 80),
        ("series", "vocabulary", 64),
        ("text", "corpus", 80),
        ("text", "vocabulary", 300),
        ("image", "corpus", 5 * 16),
    ]
    sources = [row.source for row in report.rows if row.matrix == "corpus"]
    assert sources == ["mixed: 4 series of 20", "book.txt: 4 texts of 20 tokens (bytes)", "generated: 5 images"]
    for row in report.rows:
        assert row.largest_rank == min(row.tokens, row.d_model)
        assert row.relative_ranks == {eps: rank / row.largest_rank for eps, rank in row.eps_ranks.items()}
    data = json.loads(codec.text(report))
    assert codec.plain(codec.parse(EmbeddingReport, data)) == codec.plain(report)
    assert list(report.to_frame().modality.unique()) == ["series", "text", "image"]


def test_image_rows_are_the_patches_times_the_patch_matrix(image_model: Checkpoint) -> None:
    (row,) = measure_embedding([image_model], image_count=7, batch_size=2, seed=3).rows
    pixels = (images(7, 16, 3)[0] - 0.5) / 0.5
    patches = pixels.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(7 * 16, -1)
    name = "embeddings.patch_embeddings.projection"
    module = dict(image_model.module().named_parameters())
    x = patches @ module[f"{name}.weight"].detach().flatten(1).T + module[f"{name}.bias"].detach()
    np.testing.assert_allclose(row.sigma, torch.linalg.svdvals(x.double()), rtol=1e-4, atol=1e-4)


def test_text_rows_are_the_tokens_of_the_text(text_model: Checkpoint, book: Path) -> None:
    whole = measure_embedding([text_model], text=book, length=10_000).rows[0]
    ids = torch.tensor(list(TEXT.encode())) + BYTE_OFFSET
    x = text_model.tensor("shared.weight")[ids].double()
    np.testing.assert_allclose(whole.sigma, torch.linalg.svdvals(x), rtol=1e-6, atol=1e-6)
    assert whole.projection.colour_name == "token id"
    np.testing.assert_array_equal(whole.projection.colour, ids)


def test_angles_of_wavelet_coefficients_show_every_level() -> None:
    """Half of the rows are coarse coefficients, half details, all of the first series: the paper's four blocks."""
    checkpoint = open_checkpoint("bundled-wavetoken")
    (row, _) = measure_embedding([checkpoint], "sine", n=2, length=64, angle_items=16).rows
    x = checkpoint.family.embed(checkpoint.module(), corpus("sine", 2, 64))
    np.testing.assert_allclose(row.angles, angle_matrix(x[np.linspace(0, 63, 16).round()]), atol=1e-6)


def test_text_models_without_a_text_show_their_vocabulary(text_model: Checkpoint, bolt_folder: Path) -> None:
    report = measure_embedding([open_checkpoint(bolt_folder), text_model], n=2, length=16)
    assert [(row.modality, row.matrix) for row in report.rows] == [("series", "corpus"), ("text", "vocabulary")]


def test_token_ids_in_a_file_are_for_text_models_alone(
    text_model: Checkpoint, bolt_folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "ids.csv"
    file.write_text("a,b\n" + "\n".join(f"{i},{i + 7}" for i in range(1, 31)))
    alone = measure_embedding([text_model], "user", n=3, length=8, file=file)
    assert [(row.matrix, row.tokens) for row in alone.rows] == [("corpus", 24), ("vocabulary", 300)]
    beside = measure_embedding([text_model, open_checkpoint(bolt_folder)], "user", n=3, length=8, file=file)
    assert [(row.modality, row.matrix) for row in beside.rows] == [("text", "vocabulary"), ("series", "corpus")]


def test_a_corpus_that_no_model_reads_is_refused(
    text_model: Checkpoint, image_model: Checkpoint, bolt_folder: Path, book: Path, tmp_path: Path
) -> None:
    bolt, file = open_checkpoint(bolt_folder), tmp_path / "series.csv"
    with pytest.raises(OptionError, match=r"models reads text: .*chronos-bolt \(series\), .*vit \(image\)"):
        measure_embedding([bolt, image_model], text=book)
    with pytest.raises(OptionError, match="none of these models reads images"):
        measure_embedding([bolt], images="cifar10")
    for models in ([image_model], [text_model, image_model]):
        with pytest.raises(OptionError, match="none of these models reads series"):
            measure_embedding(models, "user", file=file)
    with pytest.raises(OptionError, match="did you mean 'generated'"):
        measure_embedding([image_model], images="generatd")
    with pytest.raises(OptionError, match="image_count 0 is not usable"):
        measure_embedding([image_model], image_count=0)
    with pytest.raises(DataError, match=r"absent\.txt cannot be read"):
        measure_embedding([text_model], text=tmp_path / "absent.txt")


def test_a_flow_over_a_file_of_series_that_is_not_read_is_refused(
    text_model: Checkpoint, image_model: Checkpoint, book: Path, tmp_path: Path
) -> None:
    file = tmp_path / "ids.csv"
    file.write_text("a,b\n" + "\n".join(f"{i},{i + 7}" for i in range(1, 31)))
    for model, text in ((text_model, book), (image_model, None)):
        with pytest.raises(OptionError, match=r"ids\.csv' has no effect: none of these models reads series"):
            measure_flow(model, "user", n=2, length=8, file=file, text=text)
    assert measure_flow(text_model, "user", n=2, length=8, file=file).signal == str(file)


def test_a_bad_file_is_found_before_a_model_is_built(
    bolt_folder: Path, text_model: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Checkpoint, "module", lambda *_, **__: pytest.fail("built"))
    with pytest.raises(DataError, match="does not exist"):
        measure_embedding([open_checkpoint(bolt_folder)], "user", file=tmp_path / "no.csv")
    with pytest.raises(DataError, match="No such file"):
        measure_embedding([text_model], text=tmp_path / "no.txt")


def test_real_series_and_real_text(shared_folder: Path, bolt_folder: Path, text_model: Checkpoint) -> None:
    """Hourly electricity (ETTh) for the series model, Dickens for the text model, as in the paper's Fig. 2a."""
    etth = shared_folder / "data/benchmark/ETTh/ETTh1.csv"
    novel = shared_folder / "data/text/tale_of_two_cities.txt.gz"
    models = [open_checkpoint(bolt_folder), text_model]
    report = measure_embedding(models, "user", n=8, length=32, file=etth, text=novel)
    assert [(row.matrix, row.tokens) for row in report.rows] == [("corpus", 64), ("corpus", 256), ("vocabulary", 300)]
    assert report.rows[1].source.startswith("tale_of_two_cities.txt.gz: 8 texts of 32 tokens")
