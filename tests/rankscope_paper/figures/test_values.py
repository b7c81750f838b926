"""Fig. 7: numbers and their embedded vectors are those that the models themselves use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from rankscope import open_checkpoint
from rankscope.errors import DataError
from rankscope_paper.figures import FIGURES, Settings, draw
from rankscope_paper.figures.values import embed_numbers


def test_a_bin_is_the_token_that_chronos_gives_its_middle(chronos_t5_folder: Path) -> None:
    from chronos.chronos import ChronosConfig

    checkpoint = open_checkpoint(chronos_t5_folder)
    values, x, kind = embed_numbers(checkpoint)
    tokenizer = ChronosConfig(**checkpoint.config["chronos_config"]).create_tokenizer()
    tokens, _, _ = tokenizer._input_transform(values[None], scale=torch.ones(1))
    table = checkpoint.tensor("shared.weight")
    assert kind == "quantised"
    assert len(values) == 64 - 2 - 1
    torch.testing.assert_close(x, table[tokens[0]], rtol=0, atol=0)


def test_a_patch_of_one_value_goes_through_both_layers(bolt_folder: Path) -> None:
    checkpoint = open_checkpoint(bolt_folder)
    values, x, kind = embed_numbers(checkpoint)

    def layer(name: str) -> tuple[np.ndarray, np.ndarray]:
        return tuple(
            checkpoint.tensor(f"input_patch_embedding.{name}.{part}").double().numpy() for part in ("weight", "bias")
        )

    (w1, b1), (w2, b2), (w3, b3) = (layer(name) for name in ("hidden_layer", "output_layer", "residual_layer"))
    assert kind == "continuous"
    for i in (0, 100, 511):
        patch = np.concatenate([np.full(4, float(values[i])), np.ones(4)])
        expected = w3 @ patch + b3 + w2 @ np.maximum(w1 @ patch + b1, 0) + b2
        np.testing.assert_allclose(x[i].numpy(), expected, rtol=1e-4, atol=1e-4)


def test_what_is_drawn_of_it(bolt_folder: Path) -> None:
    (drawn,) = draw(FIGURES["7"], Settings(models=(str(bolt_folder),)))
    _, x, _ = embed_numbers(open_checkpoint(bolt_folder))
    wide = x.double().numpy()
    first = drawn.frame[drawn.frame["coordinate"] == 2]["relative_value"]
    np.testing.assert_allclose(first, wide[:, 1] / np.abs(wide[:, :3]).max())
    _, _, vh = np.linalg.svd(wide)
    top = np.abs(wide @ vh[:3].T)
    np.testing.assert_allclose(
        np.abs(drawn.frame[drawn.frame["direction"] == 3]["relative_value"]), top[:, 2] / top.max(), atol=1e-9
    )


def test_other_families_are_refused(t5_folder: Path) -> None:
    with pytest.raises(DataError, match="is of family t5: figure 7 takes chronos-t5 and chronos-bolt"):
        draw(FIGURES["7"], Settings(models=(str(t5_folder),)))
