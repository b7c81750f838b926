from pathlib import Path

import pytest
import torch

from rankscope.checkpoints import open_checkpoint
from rankscope.compress import CompressOptions, compress
from rankscope.errors import FamilyError
from rankscope.measure.cache import cache_bytes


def test_bytes_of_a_cache_that_transformers_filled(tmp_path, write_checkpoint, tiny_config) -> None:
    folder = write_checkpoint(tmp_path / "t5", tiny_config("chronos-t5", num_decoder_layers=2))
    checkpoint = open_checkpoint(folder)
    module = checkpoint.module()
    with torch.no_grad():
        filled = module(
            input_ids=torch.ones(1, 32 + 1, dtype=torch.long),
            decoder_input_ids=torch.ones(1, 8, dtype=torch.long),
            use_cache=True,
        ).past_key_values
    kept = [tensor for part in (filled.self_attention_cache, filled.cross_attention_cache) for tensor in tensors(part)]
    assert cache_bytes(checkpoint) == sum(tensor.nbytes for tensor in kept)


@pytest.mark.parametrize(("kind", "field"), [("chronos-t5", "eos"), ("chronos-bolt", "reg")])
def test_a_last_token_counts_where_there_is_one(kind: str, field: str, tmp_path, write_checkpoint, tiny_config) -> None:
    bytes_of = []
    for number, has in enumerate((True, False)):
        config = tiny_config(kind)
        config["chronos_config"][f"use_{field}_token"] = has
        bytes_of.append(cache_bytes(open_checkpoint(write_checkpoint(tmp_path / str(number), config))))
    checkpoint = open_checkpoint(tmp_path / "0")
    rows = sum(
        checkpoint.shape(site)[0] for site in checkpoint.sites("attention") if site.role in ("cross.k", "cross.v")
    )
    assert bytes_of[0] - bytes_of[1] == 4 * rows > 0


@pytest.mark.parametrize("model", ["bundled-patchtsmixer", "bundled-totem", "bundled-patchtst"])
def test_what_has_no_decoder_keeps_nothing(model: str) -> None:
    assert cache_bytes(open_checkpoint(model)) == 0


def test_decoders_that_are_not_compressed_are_refused() -> None:
    with pytest.raises(FamilyError, match="bundled-timesfm is a TimesFM model, whose cache is not known"):
        cache_bytes(open_checkpoint("bundled-timesfm"))


def tensors(cache: object) -> list[torch.Tensor]:
    layers = getattr(cache, "layers", None)
    if layers is not None:
        return [tensor for layer in layers for tensor in (layer.keys, layer.values)]
    return [*cache.key_cache, *cache.value_cache]  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_narrower_heads_and_shorter_numbers_shrink_it(bolt_folder: Path, tmp_path: Path, dtype: str) -> None:
    # patches of 4 in a context of 32, a register token; one token in the decoder; 3 layers, 2 heads of 4, W_K and W_V
    dense = (32 // 4 + 1 + 1) * 3 * 2 * 4 * 2
    assert cache_bytes(open_checkpoint(bolt_folder)) == 4 * dense
    report = compress(
        bolt_folder,
        CompressOptions(attention_ratio=0.5, method="joint", calibration="mixture:8", dtype=dtype),
        out=tmp_path / "small",
    )
    tokens = {"self": 1, "cross": 32 // 4 + 1}
    numbers = sum(
        sum(site.widths) * tokens[site.role.partition(".")[0]]
        for site in report.sites
        if site.stack == "decoder" and site.role[-1] in "kv"
    )
    size = {"float32": 4, "bfloat16": 2}[dtype]
    assert cache_bytes(open_checkpoint(tmp_path / "small")) == numbers * size
    assert numbers < dense


def test_factors_shrink_nothing_and_encoders_keep_nothing(
    t5_folder: Path, chronos2_folder: Path, tmp_path: Path
) -> None:
    compress(t5_folder, CompressOptions(attention_ratio=0.5), out=tmp_path / "small")
    assert cache_bytes(open_checkpoint(tmp_path / "small")) == cache_bytes(open_checkpoint(t5_folder)) > 0
    assert cache_bytes(open_checkpoint(chronos2_folder)) == 0
