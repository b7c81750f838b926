"""All diagnostics of one trained model."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from rankscope_lab.data.channels import LEAD
from rankscope_lab.encoders.cell import NLL, SYNTHETIC, Cell
from rankscope_lab.encoders.data import CellData, Part
from rankscope_lab.encoders.diagnostics.geometry import gram_cosines, position_geometry, variance_shares
from rankscope_lab.encoders.diagnostics.probes import probe_data, probe_streams
from rankscope_lab.encoders.diagnostics.responses import mask_channels, position_scores, without_prefix
from rankscope_lab.encoders.models import AuditModel

LINEAR = ("linear", "linear-ortho", "linear-ppe", "linear-nobias", "linear-scaled", "linear-rotated")
"""Encoders of one weight vector per channel, each as wide as the stream."""
SINGLE_STREAM = (*LINEAR, "sum", "mlp", "concat")
"""Encoders of one token per time step."""


def diagnose(cell: Cell, model: AuditModel, data: CellData) -> dict[str, Any]:
    """Measure all that applies to a cell, on the weights as they are (of a run: those after the last epoch).

    Keys: ``gram`` (linear family: rows of W; mlp: columns of the first layer), ``norms`` of the same vectors (and of
    concat's), ``variance_shares`` (linear family, concat), ``position`` (linear family), ``probe`` ([depth][channel],
    synthetic data, one token per step), ``mask`` and ``prefix`` (NLL; ``prefix`` on synthetic data).

    Args:
        cell: which run the model is of.
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
        found = _geometry(cell, model, held.inputs)
        if cell.data == SYNTHETIC and cell.encoder in SINGLE_STREAM:
            fit, held_out = probe_data(cell.channels)
            found["probe"] = probe_streams(lambda x: model.hidden(x.to(device)), fit, held_out)
        if cell.objective == NLL:
            found |= _responses(cell, model, held)
    finally:
        model.train(was_training)
    return found


@torch.no_grad()
def _geometry(cell: Cell, model: AuditModel, inputs: Tensor) -> dict[str, Any]:
    encoder: Any = model.encoder
    if cell.encoder in LINEAR:
        rows = encoder.weight.detach()
        positions = encoder.position(inputs.shape[1])
        return {
            "gram": asdict(gram_cosines(rows)),
            "norms": rows.norm(dim=-1).tolist(),
            "variance_shares": variance_shares(rows, inputs).tolist(),
            "position": asdict(position_geometry(positions, rows)),
        }
    if cell.encoder == "mlp":
        columns = encoder.inner.weight.detach().T
        return {"gram": asdict(gram_cosines(columns)), "norms": columns.norm(dim=-1).tolist()}
    if cell.encoder == "concat":
        rows = encoder.weight.detach()
        return {"norms": rows.norm(dim=-1).tolist(), "variance_shares": variance_shares(rows, inputs).tolist()}
    return {}


def _responses(cell: Cell, model: AuditModel, held: Part) -> dict[str, Any]:
    found: dict[str, Any] = {"mask": asdict(mask_channels(model, held.inputs, held.targets))}
    if cell.data == SYNTHETIC:
        found["prefix"] = asdict(without_prefix(position_scores(model, held.inputs, held.targets), LEAD))
    return found
