"""The encoder–decoder: against ``torch.nn``, teacher forcing against step by step, the copy task."""

import copy

import pytest
import torch
from torch import nn

from rankscope.errors import OptionError
from rankscope.io import codec
from rankscope_lab.blocks import TokenEmbedding
from rankscope_lab.tokenizers.copying import START, CopySettings, copied, copier, train_copier, wrong
from rankscope_lab.tokenizers.transformer import Shape, Transformer, shifted, write

SHAPE = Shape(d_model=16, heads=4, d_ff=24, layers=2)
WORDS, LENGTH = 7, 6


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(0)
    embeddings = TokenEmbedding(WORDS, 16), TokenEmbedding(WORDS, 16)
    return Transformer(SHAPE, *embeddings, nn.Linear(16, WORDS), LENGTH).double().eval()


@pytest.fixture
def pair() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(1, WORDS, (3, LENGTH), generator=generator), torch.randint(
        1, WORDS, (3, LENGTH), generator=generator
    )


def of_torch(model: Transformer) -> tuple[nn.Module, nn.Module]:
    """torch's stacks with the weights of ours."""
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 4, 24, 0.0, batch_first=True), 2, enable_nested_tensor=False
    ).double()
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 4, 24, 0.0, batch_first=True), 2).double()
    names = {
        "self_attn": "attention",
        "multihead_attn": "cross_attention",
        "linear1": "feed_forward.inner",
        "linear2": "feed_forward.outer",
    }
    for theirs, ours, norm in ((encoder, model.encoder, ""), (decoder, model.decoder, ".norm")):
        weights = ours.state_dict()
        state = {}
        for name in theirs.state_dict():
            _, layer, head, rest = name.split(".", 3)
            place = f"{head}{norm}" if head.startswith("norm") else names[head]
            state[name] = weights[f"{layer}.{place}.{rest}"]
        theirs.load_state_dict(state)
    return encoder.eval(), decoder.eval()


def test_it_is_torchs_transformer_between_embedding_and_head(
    model: Transformer, pair: tuple[torch.Tensor, torch.Tensor]
) -> None:
    source, target = pair
    encoder, decoder = of_torch(model)
    position = model.positions.table
    memory = encoder(4.0 * model.source.table(source) + position)
    later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    read = 4.0 * model.target.table(target) + position
    want = model.head(decoder(read, memory, tgt_mask=later))
    torch.testing.assert_close(model(source, target), want, rtol=0, atol=1e-6)


def test_the_decoder_reads_the_target_one_step_late() -> None:
    target, start = torch.tensor([[5, 6, 7]]), torch.tensor([[0]])
    assert shifted(target, start).tolist() == [[0, 5, 6]]


def test_teacher_forcing_equals_step_by_step(model: Transformer, pair: tuple[torch.Tensor, torch.Tensor]) -> None:
    source, target = pair
    start = target.new_zeros(3, 1)
    forced = model(source, shifted(target, start))
    memory = model.encode(source)
    for steps in range(1, LENGTH + 1):
        read = torch.cat([start, target[:, : steps - 1]], 1)
        torch.testing.assert_close(model.decode(read, memory)[:, -1], forced[:, steps - 1])
    # what is written greedily is what teacher forcing says about that very text
    written = write(model, source, start, LENGTH, lambda logits: logits.argmax(-1))
    assert torch.equal(model(source, shifted(written, start)).argmax(-1), written)


def test_what_comes_later_does_not_matter(model: Transformer, pair: tuple[torch.Tensor, torch.Tensor]) -> None:
    source, target = pair
    other = target.clone()
    other[:, 4:] = WORDS - other[:, 4:]
    before, after = model(source, target), model(source, other)
    torch.testing.assert_close(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4:], after[:, 4:])


def test_dropout_acts_in_training_only(model: Transformer, pair: tuple[torch.Tensor, torch.Tensor]) -> None:
    assert torch.equal(model(*pair), model(*pair))
    trained = copy.deepcopy(model).train()
    assert not torch.equal(trained(*pair), trained(*pair))


def test_a_copy_task_of_length_8_is_learnt_by_heart_without_an_error() -> None:
    settings = CopySettings(
        length=8, symbols=6, sequences=8, batch_size=8, learning_rate=4e-3, steps=600, shape=Shape(32, 2, 64, 1, 0.0)
    )
    result = train_copier(settings)
    assert result.error == 0.0
    assert result.looks[-1][0] <= 600
    assert not result.diverged
    assert codec.plain(result)["error"] == 0.0
    assert sum(p.numel() for p in result.model.parameters()) == result.parameters


def test_wrong_symbols_are_counted_one_by_one() -> None:
    torch.manual_seed(0)
    settings = CopySettings(length=5, symbols=4, shape=Shape(8, 2, 8, 1))
    model = copier(settings)
    source = torch.randint(1, 5, (6, 5))
    out = copied(model, source)
    count = sum(int(a != b) for a, b in zip(out.flatten().tolist(), source.flatten().tolist(), strict=True))
    assert wrong(model, source) == pytest.approx(count / 30)
    assert not model.training
    assert START not in source


def test_sizes_that_cannot_be() -> None:
    with pytest.raises(OptionError, match="at least 1"):
        Shape(layers=0)
    with pytest.raises(OptionError, match="at least 1"):
        CopySettings(length=0)
