"""One matrix at a time: plain and data-aware ways to write W as a sum of rank-1 terms, and its cut to a rank.

Each function states what it minimises. W is (d_out, d_in), x the input of the layer, C = E[x xᵀ] its second moment
over a calibration set, not centred.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.compress.calibration.moments import InputMoments, centred
from rankscope.compress.plan import SitePlan, Spectrum
from rankscope.compress.taps import MatrixTap, Tap
from rankscope.errors import OptionError
from rankscope.families import Factored, Layout, Site
from rankscope.numerics import FactoredMatrix, singular_values, symmetric_root
from rankscope.numerics.spectrum import upcast

ASVD_EXPONENT = 0.5
"""Power of the mean absolute input in `asvd` (arXiv 2312.05821)."""
NEGLIGIBLE = 1e-12
"""Energies below this share of the largest are rounding errors of float64."""

Matrix = Float[Tensor, "d_out d_in"] | FactoredMatrix
Matrices = Mapping[Site, Tensor | FactoredMatrix]


@dataclass(frozen=True)
class Decomposition:
    """W ≈ up[:, :r] · down[:r] for every r at once.

    Attributes:
        sigma: worth of each term in the method's own norm, descending, and of directions of the inputs that no term
            holds; the squares of those that are cut add up to the squared error of the methods that minimise one.
        up: (d_out, k).
        down: (k, d_in).
    """

    sigma: Float[Tensor, " n"]
    up: Float[Tensor, "d_out k"]
    down: Float[Tensor, "k d_in"]

    def between(self, first: Float[Tensor, "d_out d"], second: Float[Tensor, "d d_in"]) -> Decomposition:
        """Terms of first·second, where ``self`` decomposes the identity (d, d) between the two."""
        return Decomposition(self.sigma, first.double() @ self.up, self.down @ second.double())

    def at(self, rank: int, dtype: torch.dtype | None = None) -> FactoredMatrix:
        """The first ``rank`` terms, each shared evenly by both factors so that neither leaves the range of float16.

        Raises:
            OptionError: there are fewer terms.
        """
        (rows, most), columns = self.up.shape, self.down.shape[1]
        if not 1 <= rank <= most:
            raise OptionError(f"rank {rank} is outside 1…{most} for a {rows}×{columns} matrix.")
        up, down = self.up[:, :rank], self.down[:rank]
        left, right = up.norm(dim=0), down.norm(dim=1)
        even = torch.where((left > 0) & (right > 0), (right / left).sqrt(), torch.ones_like(left))
        kind = up.dtype if dtype is None else dtype
        return FactoredMatrix(
            up=(up * even).to(kind).contiguous(),
            down=(down / even[:, None]).to(kind).contiguous(),
        )


def svd(matrix: Matrix, moments: InputMoments | None = None, seed: int = 0) -> Decomposition:
    """Plain SVD: minimises ‖W − W̃‖ in the spectral and the Frobenius norm, whatever the inputs are.

    >>> svd(torch.diag(torch.tensor([4.0, 1.0]))).sigma.tolist()
    [4.0, 1.0]
    """
    left, s, right = torch.linalg.svd(_dense(matrix), full_matrices=False)
    return Decomposition(s, left * s, right)


def whitened(matrix: Matrix, moments: InputMoments, seed: int = 0) -> Decomposition:
    """Minimises the mean squared output error E‖(W − W̃)x‖² = ‖(W − W̃)C^{1/2}‖_F².

    With W C Wᵀ = U Λ Uᵀ the optimum of rank r is U_r U_rᵀ W: by Eckart and Young the best approximation of W C^{1/2} is
    U_r U_rᵀ W C^{1/2}, and U_r U_rᵀ W attains it whether or not C is invertible. No root, inverse or Cholesky factor of
    C is needed, and one eigendecomposition serves every rank. Outputs of the compressed layer are the principal
    components of the layer's own. A matrix that is taller than wide goes through C^{1/2} instead, whose side is d_in.
    Ranks beyond the directions that the inputs show go to what else W has.

    ``sigma`` are the root mean squares of the outputs along U.
    """
    w, c = _dense(matrix).to(torch.float64), moments.second
    if w.shape[0] <= w.shape[1]:
        values, vectors = torch.linalg.eigh(_symmetric(w @ c @ w.mT))
        u = vectors.flip(1)
    else:
        root, _ = symmetric_root(c)
        seen = w @ root
        values, vectors = torch.linalg.eigh(_symmetric(seen.mT @ seen))
        u = _completed(seen @ vectors.flip(1), w)
    sigma = values.flip(0).clamp(min=0.0).sqrt()
    return Decomposition(_clean(sigma), u, u.mT @ w)


def theorem3(matrix: Matrix, moments: InputMoments, seed: int = 0) -> Decomposition:
    """W U_r U_rᵀ with U_r the r leading principal directions of the inputs (Theorem 3 of the rank paper).

    The error is W applied to what the inputs have outside those r directions, so at most ‖W‖₂ times their next singular
    values. It does not look at W: a direction that W ignores costs as much as one that it amplifies.

    ``sigma`` are the root mean squares of the inputs along U: the theorem's singular values.
    """
    w = _dense(matrix).to(torch.float64)
    values, vectors = torch.linalg.eigh(_symmetric(moments.second))
    basis = vectors.flip(1)
    k = min(w.shape)
    return Decomposition(_clean(values.flip(0).clamp(min=0.0).sqrt()), (w @ basis)[:, :k], basis.mT[:k])


def asvd(matrix: Matrix, moments: InputMoments, seed: int = 0) -> Decomposition:
    """SVD of W diag(s), s the mean absolute input of every channel to the power 1/2 (ASVD, arXiv 2312.05821).

    A diagonal stand-in for C^{1/2}: it sees loud channels, but no correlation between them.
    """
    w = _dense(matrix).to(torch.float64)
    loudness = moments.absolute
    scale = loudness.clamp(min=NEGLIGIBLE * float(loudness.max().clamp(min=1.0))) ** ASVD_EXPONENT
    left, s, right = torch.linalg.svd(w * scale, full_matrices=False)
    return Decomposition(s, left * s, right / scale)


def random_projection(matrix: Matrix, moments: InputMoments | None = None, seed: int = 0) -> Decomposition:
    """W P Pᵀ with the columns of P orthonormal and at random: a control, a sketch of the inputs without data.

    ``sigma`` are the norms of W along P, in the order of their size.
    """
    w = _dense(matrix).to(torch.float64)
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(w.shape[1], w.shape[1], generator=generator, dtype=torch.float64)).Q
    sigma, order = (w @ basis).norm(dim=0).sort(descending=True)
    kept = basis[:, order[: min(w.shape)]]
    return Decomposition(sigma, w @ kept, kept.mT)


METHODS: Mapping[str, Callable[..., Decomposition]] = {
    "svd": svd,
    "whitened": whitened,
    "theorem3": theorem3,
    "asvd": asvd,
    "random": random_projection,
}
"""Methods for single matrices by name; ``joint`` is the one for whole attentions and blocks."""


def truncated_svd(
    matrix: Float[Tensor, "d_out d_in"] | FactoredMatrix, rank: int, dtype: torch.dtype | None = None
) -> FactoredMatrix:
    """Best approximation of ``rank``, as balanced factors up = U√Σ and down = √Σ Vᵀ.

    By Eckart and Young no matrix of that rank is closer: the error is σ_{rank+1} in the spectral norm and
    √(Σ_{j>rank} σ_j²) in the Frobenius norm. Half precision is decomposed in float32, because LAPACK has no
    half precision, and the factors are cast to ``dtype`` (the matrix's own by default) once, at the end.
    Balanced factors have equal norms, so neither leaves the range of float16. A `FactoredMatrix` is decomposed
    through QR of its factors and never multiplied out.

    >>> f = truncated_svd(torch.diag(torch.tensor([4.0, 1.0])), 1)
    >>> f.dense().abs().round(decimals=4).tolist()
    [[4.0, 0.0], [0.0, 0.0]]

    Raises:
        OptionError: the rank is outside 1…min(d_out, d_in).
    """
    rows, columns = matrix.shape
    if not 1 <= rank <= min(rows, columns):
        raise OptionError(f"rank {rank} is outside 1…{min(rows, columns)} for a {rows}×{columns} matrix.")
    if isinstance(matrix, FactoredMatrix):
        stored = matrix.up.dtype
        left, s, right = _factored_svd(matrix)
    else:
        stored = matrix.dtype
        left, s, right = torch.linalg.svd(upcast(matrix), full_matrices=False)
    root = s[:rank].sqrt()
    kind = stored if dtype is None else dtype
    return FactoredMatrix(
        up=(left[:, :rank] * root).to(kind).contiguous(),
        down=(root[:, None] * right[:rank]).to(kind).contiguous(),
    )


@dataclass(frozen=True)
class MatrixCut:
    """One matrix W ≈ up·down.

    A linear map computes W x + b; cut to W̃ x + b̃ with b̃ = b + (W − W̃) x̄ its error has mean zero, so only the
    covariance of the inputs counts, and a direction that is the same for all tokens costs no rank. A plain SVD knows no
    inputs: its bias stays, as does that of a checkpoint.

    Attributes:
        site: where it is.
        method: a key of `METHODS`.
        moments: of its inputs, None for a method that needs none.
        stored: layout and number of stored numbers where it is factored already.
        eps: smallest ε that will be asked for, where one is known: the cheapest way to singular values depends on it.
        seed: of a random method.
        bias: of the layer, where it is to take up what is cut.
    """

    site: Site
    method: str
    moments: InputMoments | None = field(default=None, repr=False)
    stored: tuple[int, int] | None = None
    eps: float | None = None
    seed: int = 0
    bias: Float[Tensor, " d_out"] | None = field(default=None, repr=False)

    @property
    def sites(self) -> tuple[Site, ...]:
        """The one site."""
        return (self.site,)

    @property
    def module(self) -> str:
        """Name of the layer."""
        return self.site.module

    def decompose(self, matrix: Tensor | FactoredMatrix) -> Decomposition:
        """All terms of the matrix, by the method."""
        moments = self.moments if self.bias is None or self.moments is None else centred(self.moments)
        return METHODS[self.method](matrix, moments, self.seed)

    def terms(self, matrices: Matrices) -> list[Decomposition]:
        """The one decomposition."""
        return [self.decompose(matrices[self.site])]

    def spectra(self, matrices: Matrices, terms: Sequence[Decomposition] | None = None) -> list[Spectrum]:
        """Singular values, in the norm of the method."""
        matrix = matrices[self.site]
        if terms is not None:
            sigma = terms[0].sigma
        elif self.method != "svd":
            sigma = self.decompose(matrix).sigma
        elif isinstance(matrix, FactoredMatrix):
            sigma = matrix.singular_values()
        else:
            sigma = singular_values(matrix, smallest_eps=self.eps)
        rank, numbers = self.stored or (None, None)
        layer, heads = self.site.layer or 0, self.site.heads or 1
        return [
            Spectrum(
                self.site.name,
                (matrix.shape[0], matrix.shape[1]),
                sigma,
                rank,
                numbers,
                layer=layer,
                heads=heads,
            )
        ]

    def tap(self, terms: Sequence[Decomposition]) -> Tap:
        """At the output of the layer."""
        return MatrixTap(self.module, terms[0])

    def layouts(self, plans: Sequence[SitePlan], now: Mapping[str, Layout]) -> dict[str, Layout]:
        """Factored at the plan's rank."""
        return {self.module: Factored(plans[0].rank)}

    def shapes(self, plans: Sequence[SitePlan]) -> dict[str, tuple[int, ...]]:
        """Names and shapes of both factors."""
        (rows, columns), rank = plans[0].spectrum.shape, plans[0].rank
        return {f"{self.module}.down.weight": (rank, columns), f"{self.module}.up.weight": (rows, rank)}

    def tensors(self, matrices: Matrices, plans: Sequence[SitePlan]) -> dict[str, Tensor]:
        """Both factors, in at least float32."""
        factors = self._factors(matrices, plans[0].rank)
        return {f"{self.module}.down.weight": factors.down, f"{self.module}.up.weight": factors.up}

    def renamed(self) -> Mapping[str, str]:
        """The bias is that of the second factor."""
        return {f"{self.module}.bias": f"{self.module}.up.bias"}

    def stand_ins(self, matrices: Matrices, plans: Sequence[SitePlan]) -> dict[Site, Tensor]:
        """The product of both factors."""
        return {self.site: self._factors(matrices, plans[0].rank).dense()}

    def biases(self, matrices: Matrices, plans: Sequence[SitePlan]) -> dict[Site, Tensor]:
        """Bias beside the factors that compensates their mean error, where there is one."""
        matrix = matrices[self.site]
        if self.bias is None or self.moments is None or not isinstance(matrix, Tensor):
            return {}
        left = self._factors(matrices, plans[0].rank).dense()
        mean = self.moments.mean
        return {self.site: self.bias.double() + (matrix.double() - left.double()) @ mean}

    def shortage(self, plans: Sequence[SitePlan]) -> tuple[int, int] | None:
        """Calibration positions and the rank that they have to determine, where they are fewer."""
        ranks = min(plans[0].spectrum.shape)
        if self.moments is None or not plans[0].changed or self.moments.tokens >= ranks:
            return None
        return self.moments.tokens, ranks

    def _factors(self, matrices: Matrices, rank: int) -> FactoredMatrix:
        matrix = matrices[self.site]
        return truncated_svd(matrix, rank, _wide(matrix)) if self.method == "svd" else self.decompose(matrix).at(rank)


def _factored_svd(matrix: FactoredMatrix) -> tuple[Tensor, Tensor, Tensor]:
    q_up, r_up = torch.linalg.qr(upcast(matrix.up))
    q_down, r_down = torch.linalg.qr(upcast(matrix.down).mT)
    u, s, vh = torch.linalg.svd(r_up @ r_down.mT, full_matrices=False)
    return q_up @ u, s, vh @ q_down.mT


def _dense(matrix: Matrix) -> Float[Tensor, "d_out d_in"]:
    if isinstance(matrix, FactoredMatrix):
        return upcast(matrix.up) @ upcast(matrix.down)
    return upcast(matrix)


def _symmetric(matrix: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    return (matrix + matrix.mT) / 2


def _clean(sigma: Float[Tensor, " k"]) -> Float[Tensor, " k"]:
    """Set values to zero that float64 cannot distinguish from it."""
    if not len(sigma):
        return sigma
    return torch.where(sigma**2 > NEGLIGIBLE * sigma[0] ** 2, sigma, torch.zeros_like(sigma))


def _completed(columns: Float[Tensor, "d k"], w: Float[Tensor, "d n"]) -> Float[Tensor, "d k"]:
    """Columns of length one; zero ones, which no input has, become the leading directions of W outside the others."""
    norms = columns.norm(dim=0)
    kept = norms > NEGLIGIBLE**0.5 * norms.max()
    made = torch.where(kept, columns / norms.where(kept, torch.ones_like(norms)), torch.zeros_like(columns))
    if not bool(kept.all()):
        left, s, _ = torch.linalg.svd(w - made @ (made.mT @ w), full_matrices=False)
        more = torch.where(s > NEGLIGIBLE**0.5 * w.norm(), left, torch.zeros_like(left))
        made[:, ~kept] = more[:, : int((~kept).sum())]
    return made


def _wide(matrix: Tensor | FactoredMatrix) -> torch.dtype:
    stored = matrix.dtype if isinstance(matrix, Tensor) else matrix.up.dtype
    return torch.float32 if stored.itemsize < 4 else stored
