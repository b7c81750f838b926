"""The theorems on a checkpoint's own weights and activations, their hypotheses tested first."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.checkpoints import Checkpoint
from rankscope.engine import Progress, silent
from rankscope.errors import OptionError
from rankscope.families import Site
from rankscope.measure.hooks import Rows, run_corpus, watch
from rankscope.numerics.factored import FactoredMatrix
from rankscope.series.signals import corpus
from rankscope_paper import bounds
from rankscope_paper.theory.check import CheckResult, Printed, verdict
from rankscope_paper.theory.checks import CHECKS


@dataclass(frozen=True)
class Found:
    """One theorem on a checkpoint: its unmet hypotheses, or its worst ratio and where that was."""

    unmet: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    instances: int = 0
    worst_ratio: float = math.nan
    worst: str = ""
    printed: Printed | None = None


@dataclass(frozen=True)
class Probe:
    """A checkpoint and the corpus that runs through it.

    Attributes:
        checkpoint: the model.
        module: the same, built.
        series: corpus (series, time).
    """

    checkpoint: Checkpoint
    module: nn.Module
    series: Float[Tensor, "series time"]

    def sites(self) -> tuple[Site, ...]:
        """Every site, for families too that have none of some kind."""
        return self.checkpoint.sites("all")

    def self_attention(self) -> tuple[Site, ...]:
        """Sites of the encoder's self-attention."""
        return tuple(site for site in self.sites() if site.stack == "encoder" and site.role.startswith("self."))

    def entering(self, sites: Sequence[Site]) -> dict[str, Float[Tensor, "tokens d_in"]]:
        """Inputs of the projections of these sites, one row per token, float64; the corpus runs once."""
        modules = {site.name: self.module.get_submodule(site.module) for site in sites}
        with watch(modules, Rows) as rows:
            run_corpus(self.module, self.checkpoint.family.model_inputs, self.series)
        return {name: kept.matrix.double() for name, kept in rows.items()}

    def weight(self, site: Site) -> Float[Tensor, "d_out d_in"]:
        """The weight of a site, float64."""
        matrix = self.checkpoint.matrix(site)
        return (matrix.dense() if isinstance(matrix, FactoredMatrix) else matrix).double()


@dataclass(frozen=True)
class AttentionLayer:
    """One encoder self-attention: its input per series, and its matrices in the paper's convention.

    T5 does not divide scores by √d_h: its queries, times √d_h, are those of the paper's form.
    """

    name: str
    inputs: Float[Tensor, "series d_model tokens"]
    w_q: Float[Tensor, "d_inner d_model"]
    w_k: Float[Tensor, "d_inner d_model"]
    w_v: Float[Tensor, "d_inner d_model"]
    heads: int


def check_model(
    checkpoint: Checkpoint,
    ids: Sequence[str] | None = None,
    *,
    n: int = 8,
    length: int = 512,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[CheckResult, ...]:
    """Check theorems on a checkpoint: Theorem 2 on its patch embedding, 3, 5 and 4 on its encoder's self-attention.

    Args:
        checkpoint: a trained model.
        ids: keys of `CHECKS`; all without.
        n: series of the corpus.
        length: values per series.
        seed: of the corpus.
        progress: called with the number of theorems done.

    Returns:
        One result per id. Where hypotheses are not met, `CheckResult.unmet` says which, with numbers, and nothing is
        evaluated.

    Raises:
        OptionError: the model does not read series.
    """
    if checkpoint.family.modality != "series":
        raise OptionError(f"{checkpoint.source} does not read series: name a time-series model, e.g. bundled-bolt.")
    probe = Probe(checkpoint, checkpoint.module(), corpus("mixed", n, length, seed))
    chosen, report = list(ids or CHECKS), progress or silent
    results = []
    for done, name in enumerate(chosen):
        report(done, len(chosen), f"{name} on {checkpoint.source}")
        begun = time.perf_counter()
        found = _ON_MODELS[name](probe)
        seconds = time.perf_counter() - begun
        outcome = CHECKS[name].result(
            found.instances, int(bool(found.unmet)), found.worst_ratio, found.worst, seconds, found.printed
        )
        results.append(replace(outcome, model=checkpoint.source, unmet=found.unmet or outcome.unmet, notes=found.notes))
    report(len(chosen), len(chosen), "")
    return tuple(results)


def _smooth(probe: Probe) -> Found:
    """Theorem 1 and Corollary 2: a smooth function of one number."""
    family, config = probe.checkpoint.family, probe.checkpoint.config
    if family.strategy == "quantisation":
        return Found(unmet=("the embedding is a table of vectors, one per bin, not a smooth function of the number",))
    size = family.patch_size(config)
    if size > 1:
        return Found(unmet=(f"k = 1 is needed, a token of this model is a patch of k = {size} numbers",))
    return Found(unmet=("neither V nor M of this embedding is known",))


def _gated_swish(probe: Probe) -> Found:
    return Found(unmet=("the embedding is not Time-MoE's gated swish", *_smooth(probe).unmet))


def _construction(probe: Probe) -> Found:
    return Found(unmet=("the statement is about matrices made for it, not about those of a given model",))


def _patch_embedding(probe: Probe) -> Found:
    """Theorem 2 on the patch embedding; biases are one more row of ones in X."""
    sites = {site.role: site for site in probe.sites() if site.role.startswith("patch_")}
    if not {"patch_in", "patch_out", "patch_residual"} <= set(sites):
        return Found(unmet=("the model has no two-layer residual MLP as embedding",))
    first, second, skip = (sites[role] for role in ("patch_in", "patch_out", "patch_residual"))
    parent = probe.module.get_submodule(first.module.rpartition(".")[0])
    act = getattr(parent, "act", None)
    if act is None:
        return Found(unmet=("the activation of the patch embedding was not found (no attribute 'act')",))
    x = probe.entering([first])[first.name].mT
    b1, b2, b3 = (_bias(probe.module, site) for site in (first, second, skip))
    w1, w2, w3 = (probe.weight(site) for site in (first, second, skip))
    pre = w1 @ x + b1[:, None]
    hidden = act(pre)
    phi = w3 @ x + w2 @ hidden + (b2 + b3)[:, None]
    with torch.no_grad():
        real = parent(x.mT.float()).mT.double()
    unmet = []
    off = float((real - phi).abs().max() / real.abs().max())
    if off > 1e-3:
        unmet.append(
            f"the embedding is not W_3X + W_2ω(W_1X) with biases: it differs by {off:.2g} of its largest entry"
        )
    excess = float((hidden.abs() - pre.abs()).max())
    if excess > 0:
        unmet.append(f"|ω(x)| ≤ |x| fails by {excess:.2g}")
    if unmet:
        return Found(unmet=tuple(unmet))
    rank = int(torch.linalg.matrix_rank(torch.cat([x, torch.ones(1, x.shape[1], dtype=x.dtype)])))
    levels = bounds.theorem2_levels(phi, w2, pre)
    worst, where = _worst_count(levels, rank)
    values = probe.checkpoint.family.patch_size(probe.checkpoint.config)
    literal, literal_where = _worst_count(bounds.theorem2_levels(phi, w2, w1 @ x), values)
    notes = (
        f"biases are not zero (‖b_1‖ = {b1.norm():.3g}, ‖b_2 + b_3‖ = {(b2 + b3).norm():.3g}): a row of ones in X",
        f"X has {x.shape[0]} rows, {values} of them values; with the row of ones its rank is k = {rank}",
    )
    statement = f"the same with k = {values} and without biases"
    printed = Printed(statement, literal, verdict(literal), literal_where)
    return Found(notes=notes, instances=len(levels), worst_ratio=worst, worst=where, printed=printed)


def _worst_count(levels: Float[Tensor, " k"], size: int) -> tuple[float, str]:
    ratios = [j / bounds.theorem2_count(level, size) for j, level in enumerate(levels.tolist(), 1) if level > 1e-7]
    worst = max(range(len(ratios)), key=ratios.__getitem__)
    return ratios[worst], f"ε = {float(levels[worst]):.3g}: {worst + 1} singular values"


def _bias(module: nn.Module, site: Site) -> Float[Tensor, " d_out"]:
    linear = module.get_submodule(site.module)
    bias = getattr(linear, "bias", None)
    return torch.zeros(1, dtype=torch.float64) if bias is None else bias.detach().double()


def _attention_layers(probe: Probe) -> Iterator[AttentionLayer]:
    sites = probe.self_attention()
    by_layer: dict[int | None, dict[str, Site]] = {}
    for site in sites:
        by_layer.setdefault(site.layer, {})[site.role[-1]] = site
    inputs = probe.entering([group["q"] for group in by_layer.values()])
    for layer, group in by_layer.items():
        rows = inputs[group["q"].name]
        per_series = rows.reshape(len(probe.series), -1, rows.shape[1]).mT
        q, k, v = (probe.weight(group[letter]) for letter in "qkv")
        heads = group["q"].heads or 1
        yield AttentionLayer(f"encoder layer {layer}", per_series, q * (q.shape[0] / heads) ** 0.5, k, v, heads)


def _heads(layer: AttentionLayer) -> Iterator[AttentionLayer]:
    """Each head as a layer of its own."""
    rows = zip(*(w.chunk(layer.heads) for w in (layer.w_q, layer.w_k, layer.w_v)), strict=True)
    for head, (q, k, v) in enumerate(rows):
        yield AttentionLayer(f"{layer.name}, head {head}", layer.inputs, q, k, v, 1)


def _single_heads(probe: Probe) -> Found:
    """Theorem 3, which is about one head: every head on its own."""
    return _compression(probe, split=True)


_T5_ATTENTION = ".SelfAttention."
"""Part of the names of T5's attention, also where it reads series."""


def _form_unmet(probe: Probe) -> tuple[str, ...]:
    """Hypotheses on the form of attention that the encoder does not meet."""
    if "self" in probe.checkpoint.family.rotary:
        return ("queries and keys are turned by rotary positions, so scores are not UᵀW_QᵀW_KU",)
    sites = probe.self_attention()
    if not sites:
        return ("the model has no encoder self-attention",)
    biased = [s.name for s in sites if s.role[-1] in "qkv" and f"{s.module}.bias" in probe.checkpoint.index]
    if biased:
        return (f"{biased[0]} has a bias, so scores or values are not those of UᵀW_QᵀW_KU and W_VU",)
    if any(_T5_ATTENTION not in site.name for site in sites):
        return ("its attention is not T5's, the only one known here to take softmax(UᵀW_QᵀW_KU), undivided",)
    uneven = [site.name for site in sites if site.uneven]
    return (f"heads of {uneven[0]} have different widths",) if uneven else ()


def _compression(probe: Probe, split: bool = False) -> Found:
    """Theorems 3 and 5: truncation to the leading directions of each layer's inputs, at powers of 2."""
    unmet = _form_unmet(probe)
    if unmet:
        return Found(unmet=unmet)
    worst, where, count, constants = -math.inf, "", 0, []
    layers = list(_attention_layers(probe))
    for layer in [head for one in layers for head in _heads(one)] if split else layers:
        d, tokens = layer.inputs.shape[1:]
        vocabulary = layer.inputs.mT.reshape(-1, d).mT
        basis = torch.linalg.svd(vocabulary, full_matrices=False).U
        facts = {
            "scores": bounds.score_norm(layer.w_q, layer.w_k, layer.heads),
            "values": bounds.value_norm(layer.w_v, layer.heads),
            "radius": float(torch.linalg.vector_norm(vocabulary, dim=0).max()),
        }
        constants.append(facts)
        whole = bounds.multi_head_attention(layer.inputs, layer.w_q, layer.w_k, layer.w_v, layer.heads)
        for rank in (2**power for power in range(int(math.log2(d)) + 1) if 2**power < min(d, basis.shape[1])):
            leading = basis[:, :rank]
            q, k, v = (bounds.projected(w, leading) for w in (layer.w_q, layer.w_k, layer.w_v))
            error = torch.linalg.matrix_norm(whole - bounds.multi_head_attention(layer.inputs, q, k, v, layer.heads))
            rest = vocabulary - leading @ (leading.mT @ vocabulary)
            away = float(torch.linalg.vector_norm(rest, dim=0).max())
            ratio = float(error.max()) / bounds.theorem5_upper(away, tokens=tokens, **facts)
            count += len(error)
            if not ratio <= worst:
                worst, where = ratio, f"{layer.name}, r = {rank}, L = {tokens}, ‖Y − Ỹ‖_F = {float(error.max()):.3g}"
    largest = {key: max(facts[key] for facts in constants) for key in ("scores", "values", "radius")}
    notes = (
        "scores as T5 takes them, not divided by √d_h; without its position bias, which the bound allows",
        "largest constants: a = {scores:.3g}, v = {values:.3g}, C = {radius:.3g}".format(**largest),
    )
    return Found(notes=notes, instances=count, worst_ratio=worst, worst=where)


def _flow(probe: Probe, single: bool = False) -> Found:
    """Theorem 4, or for a single layer Corollary 1: hypotheses on each encoder layer, and the bound if they are met."""
    unmet = _form_unmet(probe)
    if unmet:
        return Found(unmet=unmet)
    layers = list(_attention_layers(probe))
    depth, heads = float(len(layers)), layers[0].heads
    top, scores, values = 0.0, 0.0, 0.0
    for layer in layers:
        top = max(top, float(torch.linalg.matrix_norm(layer.inputs, 2).max()))
        scores = max(scores, bounds.score_norm(layer.w_q, layer.w_k, layer.heads))
        values = max(values, *(float(torch.linalg.matrix_norm(v, 2)) for v in layer.w_v.chunk(layer.heads)))
    d, tokens = layers[0].inputs.shape[1:]
    missed: tuple[str, ...] = (f"d = {d} > L = {tokens}",) if d > tokens else ()
    if layers[0].w_v.shape[0] != d:
        missed += (f"h·d_h = {layers[0].w_v.shape[0]} ≠ d = {d}",)
    if single and depth > 1:
        missed += (f"D = 1 is needed, the encoder has {depth:g} layers",)
    deep = math.inf if single else depth  # Corollary 1 asks nothing of √D
    missed += bounds.theorem4_unmet(top, scores=scores, values=values, heads=heads, depth=deep)
    if missed:
        return Found(unmet=missed)
    worst, where = -math.inf, ""
    for layer in layers:
        for series, u in enumerate(layer.inputs):
            sigma = torch.linalg.svdvals(u)
            y = bounds.multi_head_attention(u / sigma[0], layer.w_q * sigma[0] ** 2, layer.w_k, layer.w_v, heads)
            z = torch.linalg.svdvals(u / sigma[0] + y / depth**0.5)
            if single:
                limit = bounds.corollary1_upper(sigma / sigma[0], heads)
            else:
                limit = z[0] * bounds.theorem4_upper(sigma / sigma[0], heads, depth)
            ratio = float((z / limit).max())
            if not ratio <= worst:
                worst, where = ratio, f"{layer.name}, series {series}"
    return Found(instances=len(layers) * len(probe.series), worst_ratio=worst, worst=where)


_ON_MODELS: dict[str, Callable[[Probe], Found]] = {
    "thm1i": _smooth,
    "thm1ii": _smooth,
    "cor2": _gated_swish,
    "thm2": _patch_embedding,
    "thm3": _single_heads,
    "thm3-lower": _construction,
    "thm4-upper": _flow,
    "thm4-lower": _construction,
    "cor1": partial(_flow, single=True),
    "cor1-lower": _construction,
    "thm5": _compression,
    "one-token": _construction,
    "thm6-lower": _construction,
    "thm6-upper": _construction,
}
