"""Diagnostics of trained models: ridge probes of the residual stream and accuracy with masked channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from rankscope_lab.data.channels import LEAD, channel_benchmark
from rankscope_lab.encoders.data import Part, RunData
from rankscope_lab.encoders.geometry import gram_cosines, position_geometry, variance_shares
from rankscope_lab.encoders.models import AuditModel
from rankscope_lab.encoders.run_spec import NLL, SYNTHETIC, RunSpec

RIDGE = 1e-3
PROBE_SERIES, PROBE_SEED = 256, 99
HELD_OUT = 51
"""Of the probe's series."""
_BATCH = 32
"""Series at a time: what fitted in training fits here."""


def ridge_weights(
    hidden: Float[Tensor, "rows d_model"], inputs: Float[Tensor, "rows channels"], ridge: float = RIDGE
) -> Float[Tensor, "d_model channels"]:
    """(HᵀH + λI)⁻¹ HᵀX in float64, without intercept or centring. Source: Lehtinen 2026, section 2.5."""
    h, x = hidden.double(), inputs.double()
    normal = h.T @ h + ridge * torch.eye(h.shape[1], dtype=h.dtype, device=h.device)
    return torch.linalg.solve(normal, h.T @ x)


def r_squared(
    predicted: Float[Tensor, "rows channels"], actual: Float[Tensor, "rows channels"]
) -> Float[Tensor, " channels"]:
    """1 − Σ(x − x̂)² / Σ(x − mean x)² of each channel, on the rows given."""
    residual = (actual - predicted).square().sum(0)
    return 1 - residual / (actual - actual.mean(0)).square().sum(0)


@lru_cache(maxsize=4)
def probe_data(channels: int) -> tuple[Float[Tensor, "fit time channels"], Float[Tensor, "held_out time channels"]]:
    """Series that no model was trained on: 205 to fit a probe, 51 to score it."""
    drawn = torch.from_numpy(channel_benchmark(channels, PROBE_SERIES, PROBE_SEED).inputs)
    order = torch.randperm(PROBE_SERIES, generator=torch.Generator().manual_seed(0))
    return drawn[order[:-HELD_OUT]], drawn[order[-HELD_OUT:]]


@torch.inference_mode()
def probe_streams(
    streams: Callable[[Tensor], Sequence[Tensor]],
    fit: Float[Tensor, "fit time channels"],
    held_out: Float[Tensor, "held_out time channels"],
) -> list[list[float]]:
    """R² of every channel at every depth of the stream, on held-out rows (all series × all steps).

    Args:
        streams: inputs → the stream after the encoder and after every block, each batch × time × d_model.
        fit: series that the probes are fitted on.
        held_out: series that they are scored on.

    Returns:
        [depth][channel]
    """
    fitted, scored = _rows(streams, fit), _rows(streams, held_out)
    x, y = fit.flatten(0, 1).double(), held_out.flatten(0, 1).double()
    return [
        r_squared(after @ ridge_weights(before, x), y).tolist() for before, after in zip(fitted, scored, strict=True)
    ]


def _rows(streams: Callable[[Tensor], Sequence[Tensor]], inputs: Tensor) -> list[Tensor]:
    """One float64 matrix per depth, on the CPU."""
    batches = [[one.flatten(0, 1).cpu() for one in streams(batch)] for batch in inputs.split(_BATCH)]
    return [torch.cat(depth).double() for depth in zip(*batches, strict=True)]


@torch.inference_mode()
def position_scores(
    model: Callable[[Tensor], Tensor],
    inputs: Float[Tensor, "series time channels"],
    labels: Int[Tensor, "series time"],
) -> tuple[Float[Tensor, "series scored"], Float[Tensor, "series scored"]]:
    """Score a model's logits by position; the output at step t predicts the bin at step t + 1.

    Args:
        model: inputs → logits, batch × time × bins; in evaluation mode, on the device of the inputs.
        inputs: series.
        labels: bins.

    Returns:
        Negative log-likelihood of the true bin, and 1 if it is the most likely one, else 0.
    """
    nll, right = [], []
    for x, y in zip(inputs.split(_BATCH), labels.split(_BATCH), strict=True):
        logits, target = model(x)[:, :-1].float(), y[:, 1:]
        nll.append(F.cross_entropy(logits.transpose(1, 2), target, reduction="none").cpu())
        right.append((logits.argmax(-1) == target).cpu().float())
    return torch.cat(nll), torch.cat(right)


def mask_channels(
    model: Callable[[Tensor], Tensor],
    inputs: Float[Tensor, "series time channels"],
    labels: Int[Tensor, "series time"],
) -> dict[str, Any]:
    """Return the accuracy with all channels (``none``) and with one after the other at 0, its mean (``masked``).

    Source: Lehtinen 2026, section 3.8.
    """
    masked = []
    for channel in range(inputs.shape[-1]):
        without = inputs.clone()
        without[..., channel] = 0
        masked.append(_mean(position_scores(model, without, labels)[1]))
    return {"none": _mean(position_scores(model, inputs, labels)[1]), "masked": masked}


def without_prefix(
    nll: Float[Tensor, "series scored"], right: Float[Tensor, "series scored"], lead: int
) -> dict[str, float]:
    """Return NLL and accuracy, and both without the positions that predict one of the first ``lead`` steps (``free_``).

    The outcome is constant there; the first step is predicted by none.
    """
    free = slice(lead - 1, None)
    means = {"nll": _mean(nll), "accuracy": _mean(right)}
    return means | {"free_nll": _mean(nll[:, free]), "free_accuracy": _mean(right[:, free])}


def _mean(values: Tensor) -> float:
    return float(values.double().mean())


LINEAR = ("linear", "linear-ortho", "linear-ppe", "linear-nobias", "linear-scaled", "linear-rotated")
"""Encoders of one weight vector per channel, each as wide as the stream."""
SINGLE_STREAM = (*LINEAR, "sum", "mlp", "concat")
"""Encoders of one token per time step."""


def diagnose(spec: RunSpec, model: AuditModel, data: RunData) -> dict[str, Any]:
    """Measure all that applies to a run, on the weights as they are (of a run: those after the last epoch).

    Keys: ``gram`` (linear family: rows of W; mlp: columns of the first layer), ``norms`` of the same vectors (and of
    concat's), ``variance_shares`` (linear family, concat), ``position`` (linear family), ``probe`` ([depth][channel],
    synthetic data, one token per step), ``mask`` and ``prefix`` (NLL; ``prefix`` on synthetic data).

    Args:
        spec: which run the model is of.
        model: its model, on any device; left in the mode in which it came.
        data: its tensors; only the validation part is looked at.

    Returns:
        Numbers and lists, ready for JSON; empty where a weight is not finite.
    """
    if not all(bool(parameter.isfinite().all()) for parameter in model.parameters()):
        return {}
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    try:
        held = data.validation.to(device)
        found = _geometry(spec, model, held.inputs)
        if spec.data == SYNTHETIC and spec.encoder in SINGLE_STREAM:
            fit, held_out = probe_data(spec.channels)
            found["probe"] = probe_streams(lambda x: model.hidden(x.to(device)), fit, held_out)
        if spec.objective == NLL:
            found |= _responses(spec, model, held)
    finally:
        model.train(was_training)
    return found


@torch.no_grad()
def _geometry(spec: RunSpec, model: AuditModel, inputs: Tensor) -> dict[str, Any]:
    encoder: Any = model.encoder
    if spec.encoder in LINEAR:
        rows = encoder.weight.detach()
        positions = encoder.position(inputs.shape[1])
        return {
            "gram": asdict(gram_cosines(rows)),
            "norms": rows.norm(dim=-1).tolist(),
            "variance_shares": variance_shares(rows, inputs).tolist(),
            "position": asdict(position_geometry(positions, rows)),
        }
    if spec.encoder == "mlp":
        columns = encoder.inner.weight.detach().T
        return {"gram": asdict(gram_cosines(columns)), "norms": columns.norm(dim=-1).tolist()}
    if spec.encoder == "concat":
        rows = encoder.weight.detach()
        return {"norms": rows.norm(dim=-1).tolist(), "variance_shares": variance_shares(rows, inputs).tolist()}
    return {}


def _responses(spec: RunSpec, model: AuditModel, held: Part) -> dict[str, Any]:
    found: dict[str, Any] = {"mask": mask_channels(model, held.inputs, held.targets)}
    if spec.data == SYNTHETIC:
        found["prefix"] = without_prefix(*position_scores(model, held.inputs, held.targets), LEAD)
    return found
