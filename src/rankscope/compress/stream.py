"""Narrower residual streams: every point of a stack keeps the directions that the answers would miss most.

RMSNorm commutes with rotations once its gain is in the matrices that read it, so a point's stream x may be kept as
z = B x with x ≈ A z, A (d, k) with orthonormal columns: what reads x is multiplied by A, what adds to it by B, and the
skip connection from one point to the next, with A′ and B′, is B′A. The norm divides by the length of A z, which is that
of z, over √d as before. With C = E[x xᵀ] and G the output-gradient moment at the point, the answers change to second
order by ‖G^{1/2}(1 − AB)C^{1/2}‖², least over all AB of rank k where G^{1/2}AB C^{1/2} is the cut singular value
decomposition of G^{1/2}C^{1/2}. Derivation: docs/theory/stream.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.checkpoints import Checkpoint
from rankscope.compress.calibration.moments import InputMoments, MomentSink
from rankscope.compress.calibration.passes import CalibrationSet, by_length, pass_inputs, watch_streams
from rankscope.compress.calibration.sources import given_series
from rankscope.compress.options import CompressOptions
from rankscope.compress.sensitivity import probed
from rankscope.compress.taps import Tap
from rankscope.engine import Progress
from rankscope.engine.device import fast_products, in_bfloat16, resolve_device
from rankscope.errors import OptionError
from rankscope.families.stream import points
from rankscope.numerics import symmetric_root

RIDGE, GRADIENT_RIDGE = 1e-6, 1e-3
"""Shares of the mean eigenvalue added to all of C and of G: directions that no series showed are quiet, not free."""
BATCH = 16


@dataclass(frozen=True)
class Basis:
    """Coordinates of the stream at one point, the ones that the answers miss most first.

    Attributes:
        sigma: root of the loss that every coordinate is worth on the gradient samples that chose it, descending; on
            others what is dropped is worth more, so it ranks and is no loss to expect.
        read: columns of which A is made: the best AB of rank k is read[:, :k] write[:k].
        write: rows of which B is made.
    """

    sigma: Float[Tensor, " d_model"]
    read: Float[Tensor, "d_model d_model"] = field(repr=False)
    write: Float[Tensor, "d_model d_model"] = field(repr=False)

    def at(self, width: int) -> tuple[Float[Tensor, "d_model width"], Float[Tensor, "width d_model"]]:
        """A with orthonormal columns, and B, of the best AB of this rank."""
        q, r = torch.linalg.qr(self.read[:, :width])
        return q, r @ self.write[:width]


def basis(
    second: Float[Tensor, "d d"],
    gradients: Float[Tensor, "d d"],
    ridge: float = RIDGE,
    gradient_ridge: float = GRADIENT_RIDGE,
) -> Basis:
    """Coordinates in the order of what they are worth.

    Args:
        second: C, second moment of the stream.
        gradients: G, output-gradient moment there.
        ridge: regularisation of C.
        gradient_ridge: regularisation of G.
    """
    if float(gradients.trace()) == 0:  # nothing is read here that moves an answer
        gradients = torch.eye(len(gradients), dtype=torch.float64) * torch.finfo(torch.float32).tiny
    right, _ = symmetric_root(second, ridge)
    root, values = symmetric_root(gradients, gradient_ridge)
    u, sigma, _ = torch.linalg.svd(root.mT @ right)
    return Basis(sigma, root / values @ u, u.mT @ root.mT)


class StreamTap(Tap):
    """Output-gradient moment of the stream at one point."""

    def __init__(self, point: str) -> None:
        super().__init__(point, before=True)
        self.second: Tensor | None = None

    def take(self, gradient: Tensor, apart: Tensor) -> None:
        """Add the gradients of one backward pass.

        With positions X and gradients Γ of a group the gradient of what is inserted there is N = XᵀΓ, and NᵀN is
        Γᵀ(XXᵀ)Γ, which costs less where there are fewer positions than directions.
        """
        shown, each = self.rows(self.place, len(apart)), self.rows(gradient, len(apart))
        groups = apart.unique(return_inverse=True)[1] if len(each) == len(apart) else apart.new_zeros(len(each))
        found = each.new_zeros(each.shape[-1], each.shape[-1])
        for group in range(int(groups.max()) + 1):
            x, g = (one[groups == group].flatten(0, 1) for one in (shown, each))
            found += g.mT @ ((x @ x.mT) @ g) if len(x) < x.shape[1] else (n := x.mT @ g).mT @ n
        total = found.double().cpu()
        self.second = total if self.second is None else self.second + total


def stream_taps(source: Checkpoint) -> list[StreamTap]:
    """Taps of all points of a model that has no narrower streams yet."""
    return [StreamTap(point) for point in points({name: info.shape for name, info in source.index.items()})]


def measure(
    source: Checkpoint, how: CompressOptions, progress: Progress, taps: Sequence[StreamTap] | None = None
) -> dict[str, Basis]:
    """Coordinates of every point of a model that has no narrower streams yet, chosen and priced with the same samples.

    Args:
        source: the model.
        how: what to calibrate and to probe it with, and where.
        progress: called with (done, total, what).
        taps: those of `stream_taps`, where they may have been shown the probe already.

    Raises:
        OptionError: moments of layers' inputs were given, which know no streams; or a text model has no tokens.
        DataError: a set cannot be used.
    """
    taps = stream_taps(source) if taps is None else taps
    moments = _moments(source, how, [tap.module for tap in taps], progress)
    if any(tap.scale is None for tap in taps):
        probed(source, how, taps, progress)
    found = {}
    for done, tap in enumerate(taps):
        progress(done, len(taps), "directions")
        second = moments[tap.module].second
        energy = float(second.trace())
        scale = (tap.scale or 0.0) / energy if energy else 0.0
        gradients = torch.zeros_like(second) if tap.second is None else tap.second * scale
        found[tap.module] = basis(second, gradients)
    progress(len(taps), len(taps), "directions")
    return found


def calibrated_on(source: Checkpoint, how: CompressOptions) -> CalibrationSet:
    """The set that the model is shown.

    Raises:
        OptionError: moments are given whose series cannot be regenerated.
    """
    found = given_series(source, how)
    if found is None:
        raise OptionError(
            f"method {how.completed().method} shows the model series, and those of the saved moments cannot be "
            "regenerated: give the calibration set, e.g. mixture:256."
        )
    return found


def _moments(
    source: Checkpoint, how: CompressOptions, places: list[str], progress: Progress
) -> Mapping[str, InputMoments]:
    series, device = calibrated_on(source, how), resolve_device(how.device)
    module: Any = source.module().to(device)
    width, order = int(source.config["d_model"]), by_length(series.context)
    sinks = {point: MomentSink() for point in places}
    watched = {point: module.get_submodule(point) for point in places}
    for start in range(0, len(series), BATCH):
        progress(start, len(series), "calibrating")
        part = order[start : start + BATCH]
        given = (series.context[part], series.future[part])
        inputs = pass_inputs(module, source.family, *given, how.decoder or "teacher", how.seed + start)
        products = fast_products(device, width) if in_bfloat16(device, width) else contextlib.nullcontext()
        with torch.no_grad(), watch_streams(module, watched, sinks), products:
            module(**inputs)
    return {point: sink.moments for point, sink in sinks.items() if sink.moments is not None}
