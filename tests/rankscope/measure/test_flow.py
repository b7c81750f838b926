import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rankscope.checkpoints import open_checkpoint
from rankscope.errors import OptionError
from rankscope.io import codec
from rankscope.measure.flow import FlowReport, measure_flow
from rankscope.measure.hooks import stream_triangles
from rankscope.numerics import eps_ranks
from rankscope.series.signals import corpus

Writer = Callable[..., Path]


def test_input_spectra_are_those_of_the_hidden_states(chronos_t5_folder: Path) -> None:
    checkpoint = open_checkpoint(chronos_t5_folder)
    report = measure_flow(checkpoint, "sine", n=5, length=20, seed=3, batch_size=2)
    module: Any = checkpoint.module()
    inputs = checkpoint.family.model_inputs(module, corpus("sine", 5, 20, 3))
    with torch.no_grad():
        out = module(**inputs, output_hidden_states=True)
    assert [(row.stack, row.layer) for row in report.layers] == [
        *(("encoder", layer) for layer in range(2)),
        *(("decoder", layer) for layer in range(3)),
    ]
    states = {"encoder": out.encoder_hidden_states, "decoder": out.decoder_hidden_states}
    for row in report.layers:
        x = states[row.stack][row.layer].reshape(-1, 16).double()
        want = torch.linalg.svdvals(x)
        np.testing.assert_allclose(row.sigma, want, rtol=1e-4, atol=1e-6 * float(want[0]))
        assert (row.tokens, row.d_model) == tuple(x.shape)
        assert list(row.eps_ranks.values()) == eps_ranks(want, report.eps).tolist()
        assert row.mean_relative == pytest.approx(float((want / want[0]).mean()), rel=1e-4)


def test_a_report_says_how_much_of_the_series_was_read(bolt_folder: Path) -> None:
    checkpoint = open_checkpoint(bolt_folder)
    context = checkpoint.family.context(checkpoint.config)
    assert context is not None
    longer, whole = (measure_flow(checkpoint, n=2, length=length) for length in (4 * context, context))
    assert (longer.length, whole.length) == (context, context)
    assert longer.corpus == whole.corpus == f"2 series of {context} values"


def test_weights_stand_beside_their_layer(chronos_t5_folder: Path) -> None:
    checkpoint = open_checkpoint(chronos_t5_folder)
    report = measure_flow(checkpoint, n=2, length=16, eps=(0.5, 0.0))
    assert set(report.stack("encoder")[0].weight_eps_ranks) == {f"self.{letter}" for letter in "qkvo"}
    assert "cross.k" in report.stack("decoder")[2].weight_eps_ranks
    for site in checkpoint.sites("attention"):
        row = report.stack(site.stack)[site.layer or 0]
        sigma = torch.linalg.svdvals(checkpoint.tensor(site.name))
        want = dict(zip(("0.5", "0.0"), eps_ranks(sigma, (0.5, 0.0)).tolist(), strict=True))
        assert row.weight_eps_ranks[site.role] == want


def test_constant_signal_without_special_tokens_keeps_rank_one(
    tmp_path: Path, write_checkpoint: Writer, tiny_config: Callable[..., Any]
) -> None:
    """Identical tokens stay identical: T5 adds no positions to the residual stream."""
    config = tiny_config("chronos-t5")
    config["chronos_config"]["use_eos_token"] = False
    checkpoint = open_checkpoint(write_checkpoint(tmp_path / "m", config))
    report = measure_flow(checkpoint, "constant", n=2, length=32, eps=(1e-4,))
    for row in report.stack("encoder"):
        assert row.eps_ranks == {"0.0001": 1}
        assert row.relative[1] < 1e-5


def test_constant_signal_with_an_end_token_enters_at_rank_two(chronos_t5_folder: Path) -> None:
    report = measure_flow(open_checkpoint(chronos_t5_folder), "constant", n=2, length=16, eps=(1e-4,))
    first = report.stack("encoder")[0]
    assert first.eps_ranks["0.0001"] == 2  # the zero bin and the end-of-sequence token


@pytest.mark.parametrize("kind", ["chronos-bolt", "chronos-2"])
def test_other_families(tmp_path: Path, kind: str, write_checkpoint: Writer, tiny_config: Callable[..., Any]) -> None:
    checkpoint = open_checkpoint(write_checkpoint(tmp_path / "m", tiny_config(kind)))
    report = measure_flow(checkpoint, "noise", n=3, length=16)
    stacks = {"encoder", "decoder"} if kind == "chronos-bolt" else {"encoder"}
    assert {row.stack for row in report.layers} == stacks
    assert all(row.sigma[0] > 0 for row in report.layers)
    if kind == "chronos-bolt":
        assert report.stack("encoder")[0].tokens == 3 * (16 // 4 + 1)  # patches and the REG token
        assert report.stack("decoder")[0].tokens == 3
        trained = {"self.v", "self.o", *(f"cross.{letter}" for letter in "qkvo")}
        assert set(report.stack("decoder")[0].weight_eps_ranks) == trained  # no gradient reaches self.q and self.k


def test_left_padding_is_left_out_of_the_matrix(
    tmp_path: Path, write_checkpoint: Writer, tiny_config: Callable[..., Any]
) -> None:
    import pandas as pd

    checkpoint = open_checkpoint(write_checkpoint(tmp_path / "m", tiny_config("chronos-t5")))
    pd.DataFrame({"a": [np.nan] * 6 + list(range(1, 11))}).to_csv(tmp_path / "x.csv", index=False)
    report = measure_flow(checkpoint, "user", n=1, length=16, file=tmp_path / "x.csv")
    assert report.stack("encoder")[0].tokens == 10 + 1


def test_text_models_want_token_ids(t5_folder: Path, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(t5_folder)
    with pytest.raises(OptionError, match="reads text"):
        measure_flow(checkpoint, "sine", n=1, length=4)
    (tmp_path / "x.jsonl").write_text('{"target": [5, 6, 7, 8, 9]}\n')
    assert measure_flow(checkpoint, "user", n=2, length=4, file=tmp_path / "x.jsonl").stack("encoder")


def test_eps_is_checked_before_any_work(chronos_t5_folder: Path) -> None:
    with pytest.raises(OptionError, match="eps"):
        measure_flow(open_checkpoint(chronos_t5_folder), eps=(1.0,))


def test_json_round_trip_and_frame(chronos_t5_folder: Path) -> None:
    report = measure_flow(open_checkpoint(chronos_t5_folder), n=2, length=16)
    data = json.loads(codec.text(report))
    assert data["schema"] == "rankscope/flow@1"
    again = codec.parse(FlowReport, data)
    assert codec.plain(again) == codec.plain(report)
    frame = report.to_frame()
    assert list(frame.columns) == ["stack", "layer", "matrix", "eps", "eps_rank"]
    assert len(frame) == 3 * (2 * 5 + 3 * 9)
    one = frame.query("stack == 'decoder' and layer == 1 and matrix == 'cross.v' and eps == 0.05")
    assert one.eps_rank.item() == report.stack("decoder")[1].weight_eps_ranks["cross.v"]["0.05"]


def test_the_same_seed_gives_the_same_report(bolt_folder: Path) -> None:
    checkpoint = open_checkpoint(bolt_folder)
    first, again = (codec.plain(measure_flow(checkpoint, "noise", n=3, length=12, seed=5)) for _ in range(2))
    assert first == again


def test_factored_checkpoints_flow_like_their_dense_originals(chronos_t5_folder: Path, tmp_path: Path) -> None:
    from rankscope.compress import CompressOptions, compress

    dense = open_checkpoint(chronos_t5_folder)
    # below rank 6 of the 8×16 matrices the factors are smaller, so some sites are really factored
    compress(dense, CompressOptions(eps=0.6), out=tmp_path / "small")
    small = open_checkpoint(tmp_path / "small")
    assert "factored" in {small.layout(site) for site in small.sites()}
    report = measure_flow(small, "sine", n=3, length=16, eps=(0.6, 1e-4))
    before = measure_flow(dense, "sine", n=3, length=16, eps=(0.6, 1e-4))
    np.testing.assert_allclose(report.layers[0].sigma, before.layers[0].sigma, rtol=1e-5)  # the same embedding
    for row, old in zip(report.layers, before.layers, strict=True):
        for role, ranks in row.weight_eps_ranks.items():
            assert ranks["0.6"] == old.weight_eps_ranks[role]["0.6"]
            assert ranks["0.0001"] <= old.weight_eps_ranks[role]["0.0001"]


@pytest.mark.usefixtures("untyped")
def test_tolerances_come_one_or_many(bolt_folder: Path) -> None:
    how: dict[str, Any] = {"n": 2, "length": 16}
    alone = measure_flow(bolt_folder, eps=0.1, **how)
    assert alone == measure_flow(open_checkpoint(bolt_folder), eps=np.array([0.1]), **how)
    assert alone == measure_flow(str(bolt_folder), eps=(0.1, 0.1), **how)
    assert alone == measure_flow(bolt_folder, eps={0.1}, **how) == measure_flow(bolt_folder, eps=iter([0.1]), **how)
    for eps in ([], "often", None, [0.1, 1.0]):
        with pytest.raises(OptionError, match=r"^eps "):
            measure_flow(bolt_folder, eps=eps, **how)
    for wrong in ({"batch_size": 0}, {"n": 1.5}, {"seed": -1}):
        with pytest.raises(OptionError, match=r"is not usable: give a whole number"):
            measure_flow(bolt_folder, **(how | wrong))


def test_equal_reports_are_equal_and_others_are_not(bolt_folder: Path) -> None:
    report = measure_flow(bolt_folder, n=2, length=16)
    assert copy.deepcopy(report) == report
    assert measure_flow(bolt_folder, n=2, length=16, eps=0.2) != report


@pytest.mark.parametrize("stand_in", ["bundled", "bundled-wavetoken", "bundled-t5-text"])
def test_padding_is_no_row_of_a_decoder_and_is_not_read(stand_in: str) -> None:
    """The rows are those of the encoder's real positions, and other padding leaves them what they are."""
    checkpoint = open_checkpoint(stand_in)
    module, family = checkpoint.module(), checkpoint.family
    if family.modality == "text":
        series = torch.randint(2, 50, (4, 24), generator=torch.Generator().manual_seed(0)).float()
        series[1:, :16] = 0  # left-padded
    else:
        series = corpus("sine", 4, 24, 3)
        series[1:, :16] = torch.nan
    inputs = family.model_inputs(module, series)
    mask = inputs["decoder_attention_mask"]
    assert mask[:, 0].all()
    assert torch.equal(mask[:, 1:], inputs["attention_mask"][:, :-1])
    with stream_triangles(family.blocks(module)) as found, torch.no_grad():
        states = module(**inputs, output_hidden_states=True).decoder_hidden_states
    for (stack, layer), triangle in found.items():
        assert triangle.tokens == int((mask if stack == "decoder" else inputs["attention_mask"]).sum())
        if stack == "decoder":
            rows = states[layer][mask > 0].double()
            torch.testing.assert_close(triangle.r.T @ triangle.r, rows.T @ rows, rtol=1e-4, atol=1e-4)
    other = {**inputs, "decoder_input_ids": inputs["decoder_input_ids"].masked_fill(mask == 0, 7)}
    with torch.no_grad():
        again = module(**other, output_hidden_states=True).decoder_hidden_states
    torch.testing.assert_close(again[-1][mask > 0], states[-1][mask > 0])


def test_a_decoder_of_whole_series_has_no_mask(chronos_t5_folder: Path) -> None:
    checkpoint = open_checkpoint(chronos_t5_folder)
    assert "decoder_attention_mask" not in checkpoint.family.model_inputs(checkpoint.module(), corpus("sine", 2, 24, 3))
