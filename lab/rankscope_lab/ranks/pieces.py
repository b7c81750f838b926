"""What of a model can be cut: a matrix, a head's queries with its keys, a head's values with its outputs.

**Biases.** A linear map with a bias computes W x + b. Cut to W̃ x + b̃ with b̃ = b + (W − W̃) x̄ the error has mean zero,
so only the covariance of the inputs x counts, and a direction that is the same for all tokens costs no rank. A plain
SVD knows no inputs: its bias stays.

Queries are W_q x + b_q, so their second moment has the bias in it, and what maps W_q to narrower queries maps b_q, too.
A key's bias adds the same number q·b_k to all scores of a query, which softmax does not see: it is set to zero, and the
keys' moment is their covariance within sequences.

Attention weights of a query sum to 1, so a value's bias adds W_o b_v to every output, whatever the weights are. It goes
into the output's bias, as does what a cut takes from the mean of the outputs, and the moment is the covariance of the
attended values. The output's bias is shared by all heads: each adds what its own cut changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.compress.calibration import InputMoments
from rankscope.compress.joint import Inner, inner_qk, inner_vo
from rankscope.compress.methods import METHODS, Decomposition
from rankscope.compress.options import needs_calibration
from rankscope.compress.plan import Spectrum
from rankscope_lab.blocks import MultiHeadAttention
from rankscope_lab.measure.find import ATTENTION, FEED_FORWARD, PROJECTION, weights_of
from rankscope_lab.ranks.calibrate import SOURCE, centred

JOINT = "joint"
CUTS = ("svd", "whitened", JOINT)
KINDS: Mapping[str, tuple[str, ...]] = {
    ATTENTION: ("q", "k", "v", "o"),
    PROJECTION: ("projection",),
    FEED_FORWARD: ("inner", "outer"),
}
"""Kind of layer → roles of its matrices."""


@runtime_checkable
class Piece(Protocol):
    """Something that can be cut to a rank."""

    @property
    def spectrum(self) -> Spectrum:
        """What each rank of it is worth and costs."""
        ...

    def cut(self, rank: int) -> None:
        """Write what is left at a rank into the model."""
        ...


@dataclass(frozen=True)
class MatrixPiece:
    """One matrix W, cut by itself.

    Attributes:
        name: of its parameter.
        matrix: a view into the model's parameter.
        bias: likewise; None without one.
        method: a key of `rankscope.compress.methods.METHODS`.
        moments: of its inputs.
    """

    name: str
    matrix: Float[Tensor, "d_out d_in"]
    bias: Float[Tensor, " d_out"] | None
    method: str
    moments: InputMoments = field(repr=False)

    @cached_property
    def terms(self) -> Decomposition:
        """All terms of W; where a bias can stand for the mean of the inputs, by their covariance."""
        moments = self.moments if self.bias is None else centred(self.moments)
        return METHODS[self.method](self.matrix, moments, 0)

    @property
    def spectrum(self) -> Spectrum:
        """Terms, stored as two factors."""
        rows, columns = self.matrix.shape
        return Spectrum(self.name, (rows, columns), self.terms.sigma)

    @torch.no_grad()
    def cut(self, rank: int) -> None:
        """Keep ``rank`` terms."""
        before = self.matrix.double()
        left = self.terms.at(rank).dense().double()
        if self.bias is not None and needs_calibration(self.method):
            mean = self.moments.total / self.moments.tokens
            self.bias.add_((before - left) @ mean)
        self.matrix.copy_(left)


@dataclass(frozen=True)
class ScoresPiece:
    """Queries with keys of one head, A = [W_q b_q]ᵀ W_k.

    Attributes:
        name: of the attention, with ``.qk.`` and the head.
        module: the attention.
        head: which.
        queries: moments of what queries are made of.
        keys: of what keys are made of.
    """

    name: str
    module: MultiHeadAttention
    head: int
    queries: InputMoments = field(repr=False)
    keys: InputMoments = field(repr=False)

    @cached_property
    def inner(self) -> Inner:
        """The terms between queries and keys."""
        w_q, b_q = _rows(self.module, 0, self.head)
        w_k, _ = _rows(self.module, 1, self.head)
        mean = self.queries.total / self.queries.tokens
        cross = torch.outer(w_q.double() @ mean, b_q.double())
        second = w_q.double() @ self.queries.second @ w_q.double().T
        moment = second + cross + cross.T + torch.outer(b_q.double(), b_q.double())
        return inner_qk(moment, w_k.double() @ self.keys.within @ w_k.double().T)

    @property
    def spectrum(self) -> Spectrum:
        """Terms; the head is stored at its own width already."""
        d = self.module.out_proj.in_features
        return Spectrum(
            self.name, (d, d), self.inner.sigma, stored_rank=d // self.module.heads, layout="head-width", rows=2
        )

    @torch.no_grad()
    def cut(self, rank: int) -> None:
        """Queries and keys of width ``rank``, filled up with zeros; the keys' bias goes."""
        w_q, b_q = _rows(self.module, 0, self.head)
        w_k, b_k = _rows(self.module, 1, self.head)
        left, right = _balanced(self.inner, rank)
        width = len(b_q)
        new_q, new_b, new_k = left.T @ w_q.double(), left.T @ b_q.double(), right @ w_k.double()
        w_q.copy_(_filled(new_q, width))
        b_q.copy_(_filled(new_b[:, None], width)[:, 0])
        w_k.copy_(_filled(new_k, width))
        b_k.zero_()


@dataclass(frozen=True)
class OutputsPiece:
    """Values with outputs of one head, B = W_o W_v.

    Attributes:
        name: of the attention, with ``.vo.`` and the head.
        module: the attention.
        head: which.
        attended: moments of what enters the output map, all heads side by side.
    """

    name: str
    module: MultiHeadAttention
    head: int
    attended: InputMoments = field(repr=False)

    @cached_property
    def inner(self) -> Inner:
        """The terms between values and outputs."""
        part = self._part
        return inner_vo(self.module.out_proj.weight.detach()[:, part], centred(self.attended).second[part, part])

    @property
    def spectrum(self) -> Spectrum:
        """Terms; the head is stored at its own width already."""
        d = self.module.out_proj.in_features
        return Spectrum(self.name, (d, d), self.inner.sigma, stored_rank=d // self.module.heads, layout="head-width")

    @torch.no_grad()
    def cut(self, rank: int) -> None:
        """Values of width ``rank``, filled up with zeros; what is constant goes into the output's bias."""
        w_v, b_v = _rows(self.module, 2, self.head)
        part, output = self._part, self.module.out_proj
        w_o = output.weight[:, part].double()
        left, right = _balanced(self.inner, rank)
        new_o, new_v = w_o @ left, right @ w_v.double()
        mean = self.attended.total[part] / self.attended.tokens
        # outputs were W_o a with a = W_v z + b_v, and are W̃_o Ṽ z: the same on average
        constant = w_o @ mean - new_o @ (right @ (mean - b_v.double()))
        output.bias.add_(constant)
        output.weight[:, part] = _filled(new_o.T, len(b_v)).T.to(output.weight.dtype)
        w_v.copy_(_filled(new_v, len(b_v)))
        b_v.zero_()

    @property
    def _part(self) -> slice:
        width = self.module.out_proj.in_features // self.module.heads
        return slice(self.head * width, (self.head + 1) * width)


def pieces_of(model: nn.Module, kind: str, method: str, moments: Mapping[str, InputMoments]) -> list[Piece]:
    """What of a kind of layer can be cut by a method; ``joint`` cuts attention head by head, and nothing else."""
    if method == JOINT:
        if kind != ATTENTION:
            return []
        names = [name for name, part in model.named_modules() if isinstance(part, MultiHeadAttention)]
        return [piece for name in names for piece in _heads(name, model.get_submodule(name), moments)]
    found: list[Piece] = []
    for one in weights_of(model):
        if one.layer is not None and one.role in KINDS[kind]:
            path = one.name.removesuffix(f".in_proj_weight.{one.role}").removesuffix(".weight")
            source = path + SOURCE if one.role in ("k", "v") else path
            bias = _bias(model.get_submodule(path), one.role)
            found.append(MatrixPiece(one.name, one.matrix, bias, method, moments[source]))
    return found


def _heads(name: str, module: nn.Module, moments: Mapping[str, InputMoments]) -> list[Piece]:
    assert isinstance(module, MultiHeadAttention)
    inputs, source, attended = moments[name], moments[name + SOURCE], moments[f"{name}.out_proj".lstrip(".")]
    scores = [ScoresPiece(f"{name}.qk.{head}", module, head, inputs, source) for head in range(module.heads)]
    return [*scores, *(OutputsPiece(f"{name}.vo.{head}", module, head, attended) for head in range(module.heads))]


def _bias(module: nn.Module, role: str) -> Tensor | None:
    if isinstance(module, MultiHeadAttention):
        return module.in_proj_bias.detach().chunk(3)["qkv".index(role)]
    assert isinstance(module, nn.Linear)
    return None if module.bias is None else module.bias.detach()


def _rows(module: MultiHeadAttention, which: int, head: int) -> tuple[Tensor, Tensor]:
    """Views of a head's rows of the queries' (0), keys' (1) or values' (2) matrix, and of its bias."""
    weight = module.in_proj_weight.detach().chunk(3)[which].chunk(module.heads)[head]
    return weight, module.in_proj_bias.detach().chunk(3)[which].chunk(module.heads)[head]


def _balanced(inner: Inner, rank: int) -> tuple[Float[Tensor, "d_head rank"], Float[Tensor, "rank d_head"]]:
    return inner.left[:, :rank], inner.right[:rank]


def _filled(rows: Float[Tensor, "rank d"], height: int) -> Float[Tensor, "height d"]:
    return F.pad(rows, (0, 0, 0, height - len(rows)))
