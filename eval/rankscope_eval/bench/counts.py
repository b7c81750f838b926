"""Minimum FLOPs and memory traffic of a forecast by phase, from the shapes of a checkpoint.

FLOPs are those of the matmuls (2 per multiply-add) in the algorithm of `rankscope.forecast`: the encoder and the
cross-attention keys and values once per series, then one decoder step per token of the horizon and sample path (before
the first token, all paths of a series are shared). Bytes are the weights of a phase, read once, the keys and values
that it reads and writes, and the encoder output; activations and logits are assumed to stay in caches. Each stored
parameter of a matrix is one multiply-add per token, for every layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from rankscope_eval.bench.case import Case

if TYPE_CHECKING:
    from rankscope.checkpoints import Checkpoint
    from rankscope.families import Decoding, Site


@dataclass(frozen=True)
class Phase:
    """Sequential phase of a forecast.

    Attributes:
        name: ``encoder``, ``cross``, ``decode`` or ``decoder``.
        flops: matmul FLOPs.
        bytes: bytes to read and write.
    """

    name: str
    flops: int
    bytes: int


@dataclass(frozen=True)
class Matrix:
    """Stored matrix.

    Attributes:
        numbers: parameters without scales, equal to multiply-adds per token.
        bytes: stored bytes.
    """

    numbers: int
    bytes: int


NOTHING = Matrix(0, 0)


@dataclass(frozen=True)
class AttentionCount:
    """Weights, caches and FLOPs of an attention layer.

    Attributes:
        q: query matrix; likewise k, v and o.
        heads: number of heads.
        qk: total width of queries.
        vo: total width of values.
        key_rank: size of the latent cached instead of keys, or None.
        value_rank: size of the latent cached instead of values, or None.
        padded: elements that the fast runtime caches per token, with heads padded to the widest one.
    """

    q: Matrix
    k: Matrix
    v: Matrix
    o: Matrix
    heads: int
    qk: int
    vo: int
    key_rank: int | None = None
    value_rank: int | None = None
    padded: int = 0

    @property
    def cached(self) -> int:
        """Cached elements per token."""
        return (self.key_rank or self.qk) + (self.value_rank or self.vo)

    def projection_macs(self, d_model: int) -> int:
        """Multiply-adds to project a token's cached keys and values; a latent needs only the inner factor."""
        keys = self.k.numbers if self.key_rank is None else self.key_rank * d_model
        values = self.v.numbers if self.value_rank is None else self.value_rank * d_model
        return keys + values

    def latent_macs(self) -> int:
        """Multiply-adds to map a query to the latent space and the result back."""
        return self.qk * (self.key_rank or 0) + self.vo * (self.value_rank or 0)

    def attention_macs(self) -> int:
        """Multiply-adds per query and cached token."""
        keys = self.qk if self.key_rank is None else self.heads * self.key_rank
        return keys + (self.vo if self.value_rank is None else self.heads * self.value_rank)


@dataclass(frozen=True)
class LayerCount:
    """Weights and FLOPs of a layer."""

    own: AttentionCount
    cross: AttentionCount | None
    mlp: Matrix


@dataclass(frozen=True)
class Network:
    """Weights of a checkpoint by layer, in the compute dtype.

    Attributes:
        decoding: `Family.decoding`.
        d_model: width.
        itemsize: bytes per cached element.
        encoder: encoder layers.
        decoder: decoder layers.
        head: output head.
        patch: patch embedding.
        inner: ``chronos_config`` entry of the config.
    """

    decoding: Decoding | None
    d_model: int
    itemsize: int
    encoder: tuple[LayerCount, ...]
    decoder: tuple[LayerCount, ...]
    head: Matrix
    patch: Matrix
    inner: dict[str, Any]


def read_network(checkpoint: Checkpoint, itemsize: int) -> Network | None:
    """Read the input of `phases` from a checkpoint's headers; None for unsupported families."""
    from rankscope.families.weight_layout import scale_name

    family = checkpoint.family
    if not family.fast:
        return None
    sites = checkpoint.sites("all")
    d_model = int(checkpoint.config["d_model"])

    def matrix(site: Site) -> Matrix:
        layout = checkpoint.factored.get(site.module)
        d_out, d_in = checkpoint.shape(site)
        parts = [(d_out, d_in)] if layout is None else list(layout.shapes(d_out, d_in))
        numbers = sum(rows * columns for rows, columns in parts)
        if scale_name(site.name if layout is None else f"{site.module}.up.weight") in checkpoint.index:
            return Matrix(numbers, numbers + itemsize * sum(rows for rows, _ in parts))
        return Matrix(numbers, numbers * itemsize)

    def latent(site: Site, share: float) -> int | None:
        """Return the latent rank that the fast runtime caches instead of keys or values."""
        layout = checkpoint.factored.get(site.module)
        if layout is None or layout.heads is not None or checkpoint.storage == "int8":
            return None
        return layout.rank if layout.rank <= share * checkpoint.shape(site)[0] else None

    def attention(found: dict[str, Site], share: float | None) -> AttentionCount:
        q, k, v, o = (found[letter] for letter in "qkvo")
        heads = k.heads or 1
        ranks = (None, None) if share is None else (latent(k, share), latent(v, share))
        wide = [rank or heads * max(site.head_widths) for rank, site in zip(ranks, (k, v), strict=True)]
        widths = sum(k.head_widths), sum(v.head_widths)
        stored = matrix(q), matrix(k), matrix(v), matrix(o)
        return AttentionCount(*stored, heads, *widths, *ranks, padded=sum(wide))

    def layers(stack: str) -> Iterator[LayerCount]:
        from rankscope.forecast.attention import LATENT_SHARE

        rows = [site for site in sites if site.stack == stack and site.layer is not None]
        for layer in sorted({site.layer for site in rows if site.layer is not None}):
            here = {site.role: site for site in rows if site.layer == layer}
            own = {letter: here[f"self.{letter}"] for letter in "qkvo"}
            decodes = stack == "decoder" and family.decoding == "tokens"
            crossed = None
            if stack == "decoder":
                other = {letter: here[f"cross.{letter}"] for letter in "qkvo"}
                crossed = attention(other, 1 / (other["k"].heads or 1) if decodes else None)
            mlp = [matrix(site) for role, site in here.items() if role.startswith("mlp")]
            whole = Matrix(sum(one.numbers for one in mlp), sum(one.bytes for one in mlp))
            yield LayerCount(attention(own, LATENT_SHARE if decodes else None), crossed, whole)

    def stored(kind: str) -> Matrix:
        parts = [matrix(site) for site in sites if site.role.startswith(f"{kind}_")]
        return Matrix(sum(one.numbers for one in parts), sum(one.bytes for one in parts))

    if family.decoding == "tokens":
        numbers = int(checkpoint.config["vocab_size"]) * d_model
        head, patch = Matrix(numbers, numbers * itemsize), NOTHING
    else:
        head, patch = stored("head"), stored("patch")
    inner = dict(checkpoint.config["chronos_config"])
    stacks = tuple(layers("encoder")), tuple(layers("decoder"))
    return Network(family.decoding, d_model, itemsize, *stacks, head, patch, inner)


def phases(network: Network, case: Case) -> tuple[Phase, ...]:
    """Return the phases of a forecast in order; a horizon beyond the model's is several blocks, as in the pipelines."""
    return tuple(_t5_phases(network, case) if network.decoding == "tokens" else _bolt_phases(network, case))


def cache_bytes(network: Network, case: Case) -> int:
    """Return the peak size of the key/value cache in bytes; zero for Chronos-Bolt.

    The stock pipeline caches the context once per sample path; the fast one caches it once per series of the decoding
    batch.
    """
    if network.decoding != "tokens":
        return 0
    fast = case.runtime == "fast"
    together = case.batch
    if fast:
        from rankscope.forecast.fast import ROWS

        together = min(case.batch, max(1, ROWS // case.num_samples))
    paths = together * case.num_samples

    def width(one: AttentionCount | None) -> int:
        assert one is not None
        return one.padded if fast else one.qk + one.vo

    own = sum(width(layer.own) for layer in network.decoder)
    cross = sum(width(layer.cross) for layer in network.decoder)
    most = 0
    for tokens, horizon in _t5_blocks(network, case):
        if fast and case.device.startswith("cuda"):
            from rankscope.forecast.decoding import GRAIN

            tokens = ceil(tokens / GRAIN) * GRAIN
        most = max(most, paths * horizon * own + (together if fast else paths) * tokens * cross)
    return most * network.itemsize


def _t5_blocks(network: Network, case: Case) -> Iterator[tuple[int, int]]:
    """Yield context and horizon tokens of every block."""
    inner = network.inner
    block, longest = int(inner["prediction_length"]), int(inner["context_length"])
    for begin in range(0, case.horizon, block):
        values = min(case.context + begin, longest)
        yield values + int(bool(inner.get("use_eos_token", True))), min(block, case.horizon - begin)


def _t5_phases(network: Network, case: Case) -> Iterator[Phase]:
    size, series = network.itemsize, case.batch
    for tokens, horizon in _t5_blocks(network, case):
        yield _encoder(network, series, tokens, NOTHING)
        hidden = series * tokens * network.d_model * size
        crossed = [layer.cross for layer in network.decoder if layer.cross is not None]
        kept = series * tokens * sum(one.cached for one in crossed)
        flops = 2 * series * tokens * sum(one.projection_macs(network.d_model) for one in crossed)
        weights = sum(one.k.bytes + one.v.bytes for one in crossed)
        yield Phase("cross", flops, weights + hidden + kept * size)
        for at in range(horizon):
            yield _step(network, series * (case.num_samples if at else 1), at, tokens, kept)


def _step(network: Network, rows: int, at: int, tokens: int, kept: int) -> Phase:
    """Count one decoding step at position ``at``; ``kept`` elements are cached for the contexts."""
    each, weights, past = network.head.numbers, network.head.bytes, 0
    for layer in network.decoder:
        own, cross = layer.own, layer.cross
        assert cross is not None
        each += own.q.numbers + own.projection_macs(network.d_model) + own.latent_macs() + own.o.numbers
        each += (at + 1) * own.attention_macs()
        each += cross.q.numbers + cross.latent_macs() + cross.o.numbers + tokens * cross.attention_macs()
        each += layer.mlp.numbers
        weights += own.q.bytes + own.k.bytes + own.v.bytes + own.o.bytes + cross.q.bytes + cross.o.bytes
        weights += layer.mlp.bytes
        ups = (cross.key_rank or 0) * cross.qk + (cross.value_rank or 0) * cross.vo
        weights += ups * network.itemsize
        past += own.cached
    moved = rows * (at + 1) * past + kept  # of the past all is read but the newest, which is written
    return Phase("decode", 2 * rows * each, weights + moved * network.itemsize)


def _encoder(network: Network, series: int, tokens: int, patch: Matrix, patches: int = 0) -> Phase:
    each, weights = 0, patch.bytes
    for layer in network.encoder:
        parts = (layer.own.q, layer.own.k, layer.own.v, layer.own.o, layer.mlp)
        each += sum(one.numbers for one in parts) + tokens * layer.own.attention_macs()
        weights += sum(one.bytes for one in parts)
    flops = 2 * series * (tokens * each + patches * patch.numbers)
    return Phase("encoder", flops, weights + series * tokens * network.d_model * network.itemsize)


def _bolt_phases(network: Network, case: Case) -> Iterator[Phase]:
    inner = network.inner
    block, longest = int(inner["prediction_length"]), int(inner["context_length"])
    size, stride = int(inner["input_patch_size"]), int(inner.get("input_patch_stride", inner["input_patch_size"]))
    for begin in range(0, case.horizon, block):
        series = case.batch * (len(inner["quantiles"]) if begin else 1)
        values = ceil(min(case.context + begin, longest) / size) * size
        patches = (values - size) // stride + 1
        tokens = patches + int(bool(inner.get("use_reg_token")))
        yield _encoder(network, series, tokens, network.patch, patches)
        yield _bolt_decoder(network, network.decoder, series, tokens)


def _bolt_decoder(network: Network, layers: Sequence[LayerCount], series: int, tokens: int) -> Phase:
    """Count the single-token decoder; its self-attention needs only values and outputs."""
    flops, weights = series * network.head.numbers, network.head.bytes
    for number, layer in enumerate(layers):
        cross = layer.cross
        assert cross is not None
        flops += (series if number else 1) * (layer.own.v.numbers + layer.own.o.numbers)
        flops += series * (cross.q.numbers + cross.o.numbers + layer.mlp.numbers)
        flops += series * tokens * (cross.k.numbers + cross.v.numbers + cross.attention_macs())
        parts = (layer.own.v, layer.own.o, cross.q, cross.k, cross.v, cross.o, layer.mlp)
        weights += sum(one.bytes for one in parts)
    return Phase("decoder", 2 * flops, weights + series * tokens * network.d_model * network.itemsize)
