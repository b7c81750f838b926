import torch
from torch import nn

from rankscope.families.models.vector_quantiser import VectorQuantiser
from rankscope_lab.blocks import (
    AttentionBlock,
    DecoderBlock,
    FeedForward,
    LearnedPositions,
    ProjectionBlock,
)
from rankscope_lab.measure import layers_of, matrix_of, sites_of


class Forecaster(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(4, 12)
        self.positions = LearnedPositions(5, 12)
        self.blocks = nn.ModuleList([ProjectionBlock(12, 20), AttentionBlock(12, 3, 20)])
        self.norm = nn.LayerNorm(12)
        self.head = nn.Linear(60, 6)


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.source = nn.Embedding(7, 12)
        self.encoder = nn.ModuleList([AttentionBlock(12, 3, 20, norm="post") for _ in range(2)])
        self.target = nn.Embedding(9, 12)
        self.decoder = nn.ModuleList([DecoderBlock(12, 2, 20) for _ in range(2)])
        self.head = nn.Linear(12, 9)


def test_layers_and_their_kinds() -> None:
    layers = layers_of(nn.Sequential(Forecaster()))
    assert [(one.name, one.stack, one.index, one.kind) for one in layers] == [
        ("0.blocks.0", "0.blocks", 0, "projection"),
        ("0.blocks.1", "0.blocks", 1, "attention"),
    ]
    assert [(one.stack, one.index) for one in layers_of(Translator())] == [
        ("encoder", 0), ("encoder", 1), ("decoder", 0), ("decoder", 1),
    ]  # fmt: skip


def test_a_block_alone_is_a_layer() -> None:
    (layer,) = layers_of(AttentionBlock(12, 3, 20))
    assert (layer.name, layer.kind) == ("", "attention")
    roles = {site.role for site in sites_of(layer.module)}
    assert roles == {"self.q", "self.k", "self.v", "self.o", "mlp_in", "mlp_out"}
    (layer,) = layers_of(nn.Sequential(nn.Linear(2, 3), nn.Sequential(FeedForward(3, 4))))
    assert (layer.name, layer.kind) == ("1", "feed_forward")


def test_every_matrix_has_a_role_and_is_found_once() -> None:
    model = Forecaster()
    found = [(site.name, site.role, layer.index if layer else None) for site, layer in sites_of(model).items()]
    assert found == [
        ("embedding.weight", "embedding", None),
        ("positions.weight", "position", None),
        ("blocks.0.projection.weight", "projection", 0),
        ("blocks.0.feed_forward.inner.weight", "mlp_in", 0),
        ("blocks.0.feed_forward.outer.weight", "mlp_out", 0),
        ("blocks.1.attention.in_proj_weight", "self.q", 1),
        ("blocks.1.attention.in_proj_weight", "self.k", 1),
        ("blocks.1.attention.in_proj_weight", "self.v", 1),
        ("blocks.1.attention.out_proj.weight", "self.o", 1),
        ("blocks.1.feed_forward.inner.weight", "mlp_in", 1),
        ("blocks.1.feed_forward.outer.weight", "mlp_out", 1),
        ("head.weight", "head", None),
    ]
    # every number of a matrix belongs to one of them
    counted = sum(matrix_of(model, site).numel() for site in sites_of(model))
    assert counted == sum(p.numel() for p in model.parameters() if p.ndim > 1)


def test_packed_rows_and_columns_of_heads() -> None:
    model = Translator()
    found = {(site.name, site.role): site for site in sites_of(model)}
    packed = model.decoder[0].cross_attention.in_proj_weight
    value = found["decoder.0.cross_attention.in_proj_weight", "cross.v"]
    assert torch.equal(matrix_of(model, value), packed[24:])
    with torch.no_grad():
        matrix_of(model, value).zero_()  # a view
    assert not packed[24:].any()
    output = found["decoder.1.cross_attention.out_proj.weight", "cross.o"]
    assert (output.stack, output.heads, output.head_axis) == ("decoder", 2, 1)
    assert found["encoder.1.attention.in_proj_weight", "self.k"].heads == 3
    assert ("source.weight", "embedding") in found
    assert ("target.weight", "embedding") in found
    assert ("head.weight", "head") in found


def test_codebook_and_convolutions_without_layers() -> None:
    model = nn.ModuleDict({"narrow": nn.Conv1d(3, 5, 4), "quantiser": VectorQuantiser(16, 5)})
    found = {site.name: site for site in sites_of(model)}
    assert found["quantiser.codebook.weight"].role == "codebook"
    assert tuple(matrix_of(model, found["narrow.weight"]).shape) == (5, 12)
    assert found["narrow.weight"].role == "other"
