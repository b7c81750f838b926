"""Flow of ranks: the spectra of every layer's input, beside the ε-ranks of the layer's own weights (Q5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.engine import Progress, silent
from rankscope.engine.device import resolve_device
from rankscope.engine.randomness import seeded
from rankscope.errors import check_count
from rankscope.measure.corpora import Corpora, corpus_of
from rankscope.measure.hooks import LayerKey, Triangle, run_corpus, stream_triangles
from rankscope.measure.spectrum import RowSpectrum, ranks_by_eps
from rankscope.numerics import effective_rank, relative_spectrum, singular_values, validate_levels
from rankscope.numerics.factored import FactoredMatrix
from rankscope.numerics.parallel import parallel_map
from rankscope.series import Columns

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from rankscope.families import Site


FEWEST = 8
"""Tokens up to which ranks of a layer's input say nothing."""


@dataclass(frozen=True)
class LayerFlow(RowSpectrum):
    """Input of one layer, every real position of every series a row, and the ε-ranks of its attention matrices.

    Attributes:
        stack: ``encoder`` or ``decoder``.
        layer: 0-based layer.
        mean_relative: mean of σ_j/σ_1, a threshold-free summary of how fast the spectrum falls.
        weight_eps_ranks: ε-ranks by ε of each trained attention matrix of the layer, by role.
    """

    stack: str
    layer: int
    mean_relative: float
    weight_eps_ranks: dict[str, dict[str, int]]

    KEYS: ClassVar = (
        *("stack", "layer", "tokens", "d_model", "sigma_max", "sigma", "eps_ranks"),
        *("mean_relative", "effective_rank", "weight_eps_ranks"),
    )


@dataclass(frozen=True)
class FlowReport:
    """Flow of ranks of one checkpoint under one signal.

    Attributes:
        signal: name of the series, path of a text, or ``images``.
        n: series, texts or images.
        length: values of a series, or tokens of a text, that the model read: at most its context.
        modality: what the model reads: ``series``, ``text`` or ``image``.
    """

    model: str
    signal: str
    n: int
    length: int
    seed: int
    eps: tuple[float, ...]
    layers: tuple[LayerFlow, ...]
    modality: str = "series"

    SCHEMA: ClassVar = "rankscope/flow@1"

    @property
    def corpus(self) -> str:
        """Size of the corpus that the model read, in words."""
        if self.modality == "image":
            return f"{self.n} generated images"
        what = "texts of {} tokens" if self.modality == "text" else "series of {} values"
        return f"{self.n} {what.format(self.length)}"

    def stack(self, name: str) -> tuple[LayerFlow, ...]:
        """Layers of one stack, first to last."""
        return tuple(row for row in self.layers if row.stack == name)

    def to_frame(self) -> pd.DataFrame:
        """One row per layer, matrix (``input`` or a role) and ε."""
        import pandas as pd

        rows = []
        for row in self.layers:
            for matrix, ranks in {"input": row.eps_ranks, **row.weight_eps_ranks}.items():
                for eps, rank in ranks.items():
                    rows.append((row.stack, row.layer, matrix, float(eps), rank))
        return pd.DataFrame(rows, columns=["stack", "layer", "matrix", "eps", "eps_rank"])


def measure_flow(
    checkpoint: str | Path | Checkpoint,
    signal: str = "sine",
    *,
    n: int = 64,
    length: int = 512,
    eps: float | Iterable[float] = (0.1, 0.05, 0.01),
    seed: int = 0,
    file: str | Path | None = None,
    columns: Columns | None = None,
    freq: str | None = None,
    text: str | Path | None = None,
    device: str = "cpu",
    batch_size: int = 32,
    progress: Progress | None = None,
) -> FlowReport:
    """Spectra and ε-ranks of every layer's input over a corpus, beside those of the layer's weights.

    The input matrix of a layer holds every real position of every series as a row; PatchTST, PatchTSMixer, Informer and
    Autoformer have no mask of positions, so that of series shorter than their context the padding counts too. Singular
    values come from a streamed float64 QR, so they keep their digits and memory does not grow with the corpus. In a
    Chronos-Bolt decoder there is one position per series. Weights that no gradient reaches are left out.

    The constant signal turns all time steps into one token. T5 adds no positions to the residual stream, so equal
    tokens stay equal and every layer's input has rank 1, but for what the end-of-sequence token (Chronos-T5), the
    REG token (Bolt) and the relative position bias of attention *to that token* make of it: the paper's Fig. 5c.

    Args:
        checkpoint: any family; stock or compressed.
        signal: see `rankscope.series.signals.corpus`. Text models take ``user`` series of token ids; image models read
            ``n`` generated images whatever the signal.
        n: series.
        length: values per series; models cut it to their context.
        eps: thresholds in [0, 1).
        seed: of the corpus.
        file: of the signal ``user``.
        columns: non-default column names of the file.
        freq: frequency of the file (default: inferred).
        text: file that a text model reads, in ``n`` windows of ``length`` tokens.
        device: where the model runs: ``cpu``, ``cuda`` or ``auto``.
        batch_size: series per forward pass.
        progress: called with the number of series done.

    Raises:
        OptionError: ε outside [0, 1), a generated signal for a text model, or a text for another one.
        DataError: the file cannot be used.
    """
    levels = validate_levels(eps)
    check_count("batch_size", batch_size)
    checkpoint = open_checkpoint(checkpoint)
    family = checkpoint.family
    name = str(text or file or signal) if family.modality != "image" else "images"
    inputs = corpus_of(checkpoint, Corpora(signal, n, length, seed, file, text, columns=columns, freq=freq))
    n = len(inputs)
    if family.modality != "image":
        length = min(inputs.shape[1], family.context(checkpoint.config) or inputs.shape[1])
    module = checkpoint.module().to(resolve_device(device))
    with seeded(seed), stream_triangles(family.blocks(module)) as triangles:  # Informer samples keys
        run_corpus(module, family.model_inputs, inputs, batch_size=batch_size, progress=progress)
    report = progress or silent
    weights = _weight_ranks(checkpoint, levels, report)

    def work(item: tuple[LayerKey, Triangle]) -> LayerFlow:
        return _layer_flow(*item, levels, weights.get(item[0], {}))

    layers: list[LayerFlow] = []
    for layer in parallel_map(work, triangles.items()):
        layers.append(layer)
        report(len(layers), len(triangles), "inputs")
    return FlowReport(checkpoint.source, name, n, length, seed, levels, tuple(layers), family.modality)


def _layer_flow(
    key: LayerKey, triangle: Triangle, eps: Sequence[float], weights: dict[str, dict[str, int]]
) -> LayerFlow:
    sigma = singular_values(triangle.r, method="svd")
    return LayerFlow(
        stack=key[0],
        layer=key[1],
        tokens=triangle.tokens,
        d_model=triangle.r.shape[1],
        sigma=sigma.cpu().numpy(),
        eps_ranks=ranks_by_eps(sigma, eps),
        mean_relative=float(relative_spectrum(sigma).mean()),
        effective_rank=float(effective_rank(sigma)),
        weight_eps_ranks=weights,
    )


def _weight_ranks(
    checkpoint: Checkpoint, eps: Sequence[float], progress: Progress
) -> dict[LayerKey, dict[str, dict[str, int]]]:
    idle = checkpoint.family.untrained
    attention = (site for site in checkpoint.sites("all") if site.kind == "attention")  # a mixer of MLPs has none
    sites = [site for site in attention if (site.stack, site.role) not in idle]
    ranks: dict[LayerKey, dict[str, dict[str, int]]] = {}

    def work(item: tuple[Site, Tensor | FactoredMatrix]) -> tuple[Site, dict[str, int]]:
        site, matrix = item
        if isinstance(matrix, FactoredMatrix):
            sigma = matrix.singular_values()
        else:
            sigma = singular_values(matrix, smallest_eps=min(eps, default=None))
        return site, ranks_by_eps(sigma, eps)

    matrices = ((site, checkpoint.matrix(site)) for site in sites)
    for done, (site, found) in enumerate(parallel_map(work, matrices), 1):
        progress(done, len(sites), "weights")
        if site.layer is not None:
            ranks.setdefault((site.stack, site.layer), {})[site.role] = found
    return ranks
