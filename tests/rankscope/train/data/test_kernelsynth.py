"""KernelSynth: covariances of the draws against the definition, the bank, and its composition."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rankscope.train.data import kernelsynth as synthesis
from rankscope.train.data.kernels import BANK, SMOOTH, BaseKernel, Composition, random_composition
from rankscope.train.data.kernelsynth import TOLERANCE, draw, kernel_bank, kernelsynth, standardised

DAY, WEEK, YEAR = (BaseKernel("periodic", period) for period in (24.0, 7.0, 365.0))
TWO_YEARS, FOUR_WEEKS = (BaseKernel("periodic", period) for period in (730.0, 672.0))  # no common ring: 245,280 steps
NARROW, WIDE = BaseKernel("rbf", 0.1), BaseKernel("rbf", 1.0)
ROUGH = BaseKernel("rational-quadratic", 0.1)
LINE = BaseKernel("linear", 1.0)
WHITE = BaseKernel("white", 0.1)


def covariance(kernel: Composition, length: int) -> np.ndarray:
    """Covariance matrix of a composition, from the definition."""
    total = base_covariance(kernel.bases[0], length)
    for times, base in zip(kernel.products, kernel.bases[1:], strict=True):
        total = total * base_covariance(base, length) if times else total + base_covariance(base, length)
    return total


def base_covariance(base: BaseKernel, length: int) -> np.ndarray:
    """The published formulas, by the names of the kernels."""
    step, value = np.arange(length), base.value
    x = step / (length - 1)
    apart, s, t = np.subtract.outer(x, x), x[:, None], x[None, :]
    return {
        "constant": lambda: np.full((length, length), value),
        "white": lambda: value * np.eye(length),
        "linear": lambda: value**2 + s * t,
        "rbf": lambda: np.exp(-(apart**2) / (2 * value**2)),
        "rational-quadratic": lambda: (1 + apart**2 / (2 * value)) ** -value,
        "periodic": lambda: np.exp(-2 * np.sin(np.pi * np.subtract.outer(step, step) / value) ** 2),
    }[base.name]()


class Basis(np.random.Generator):
    """A generator whose normal numbers are all 0 but one: what is drawn from it is a column of the linear map."""

    def __init__(self, which: int) -> None:
        super().__init__(np.random.PCG64(0))
        self.which, self.asked = which, 0

    def standard_normal(self, size: tuple[int, ...]) -> np.ndarray:  # type: ignore[override]
        flat = np.zeros(math.prod(size))
        if self.asked <= self.which < self.asked + flat.size:
            flat[self.which - self.asked] = 1.0
        self.asked += flat.size
        return flat.reshape(size)


def covariance_of_draws(kernel: Composition, n: int, length: int) -> np.ndarray:
    """A Aᵀ of the linear map A from normal numbers to ``n`` paths, one after the other: no sampling error."""
    columns: list[np.ndarray] = []
    while not columns or len(columns) < basis.asked:
        basis = Basis(len(columns))
        columns.append(draw(basis, kernel, n, length).ravel())
    return np.einsum("ai,aj->ij", columns, columns)


@pytest.mark.parametrize(
    "kernel",
    [
        Composition((WIDE, LINE, ROUGH), (True, False)),
        Composition((NARROW, NARROW), (True,)),
        Composition((DAY, WEEK), (True,)),
        Composition((DAY, WEEK, LINE), (False, True)),
        Composition((WHITE, LINE, DAY, WHITE), (False, True, False)),
        Composition((WHITE, WHITE), (True,)),
        Composition((YEAR, WEEK, LINE), (True, True)),
        Composition((TWO_YEARS, FOUR_WEEKS), (True,)),
    ],
    ids=str,
)
def test_the_covariance_of_draws_is_the_kernel_and_paths_are_independent(kernel: Composition) -> None:
    wanted = np.kron(np.eye(2), covariance(kernel, 30))
    found = covariance_of_draws(kernel, 2, 30)
    assert np.abs(found - wanted).max() < TOLERANCE * wanted.max()


def test_the_structure_of_random_compositions_is_their_definition() -> None:
    rng = np.random.default_rng(2)
    lags = np.abs(np.subtract.outer(np.arange(60), np.arange(60)))
    for _ in range(150):
        kernel = random_composition(rng)
        form = synthesis.structure(kernel, 60)
        found = np.diag(form.noise)
        for periods, values in form.smooth.items():
            basis = synthesis.interpolation(60, len(values))
            repeats = np.exp(-2 * sum(np.sin(np.pi * lags / p) ** 2 for p in periods)) if periods else 1.0
            found = found + repeats * (basis @ values @ basis.T)
        wanted = covariance(kernel, 60)
        assert np.abs(found - wanted).max() < TOLERANCE * wanted.max(), str(kernel)


@pytest.mark.parametrize("base", [one for one in BANK if one.name in SMOOTH], ids=str)
def test_smooth_kernels_are_the_published_formulas(base: BaseKernel) -> None:
    x = np.linspace(0, 1, 9)
    found = SMOOTH[base.name](x[:, None], x[None, :], base.value)
    assert np.allclose(found, base_covariance(base, 9), rtol=0, atol=1e-14)


def test_the_bank_is_the_published_one() -> None:
    values: dict[str, list[float]] = {}
    for base in BANK:
        values.setdefault(base.name, []).append(base.value)
    assert len(BANK) == 33
    assert values.pop("constant") == [1.0]
    assert values.pop("white") == [0.1, 1.0]
    assert values.pop("linear") == [0.0, 1.0, 10.0]
    assert values.pop("rbf") == values.pop("rational-quadratic") == [0.1, 1.0, 10.0]
    periods = values.pop("periodic")
    assert not values
    assert set(periods) == {24, 48, 96, 168, 336, 672, 7, 14, 30, 60, 365, 730, 4, 26, 52, 6, 12, 40, 10}
    assert periods.count(4) == 3


def test_compositions_join_from_left_to_right() -> None:
    kernel = Composition((LINE, WHITE, DAY), (False, True))
    assert str(kernel) == "(linear(1) + white(0.1)) × periodic(24)"


def test_random_compositions_have_one_to_five_kernels_and_both_operations() -> None:
    rng = np.random.default_rng(0)
    drawn = [random_composition(rng) for _ in range(2000)]
    counts = np.bincount([len(kernel.bases) for kernel in drawn], minlength=6)
    assert counts[0] == 0
    assert (np.abs(counts[1:] - 400) < 5 * math.sqrt(400)).all()
    products = [times for kernel in drawn for times in kernel.products]
    assert abs(np.mean(products) - 0.5) < 5 * 0.5 / math.sqrt(len(products))
    assert {base for kernel in drawn for base in kernel.bases} == set(BANK)


@pytest.mark.parametrize("length", [1, 2, 1024])
def test_draws_are_finite_at_any_length(length: int) -> None:
    rng = np.random.default_rng(3)
    for _ in range(100 if length < 10 else 30):
        paths = draw(rng, random_composition(rng), 2, length)
        assert paths.shape == (2, length)
        assert np.isfinite(paths).all()


def test_interpolation_is_exact_for_polynomials_also_at_a_node() -> None:
    matrix = synthesis.interpolation(3, 5)  # the middle observation, 0.5, is the middle node
    nodes = (1 + np.polynomial.chebyshev.chebpts1(5)[::-1]) / 2
    for power in range(5):
        assert np.allclose(matrix @ nodes**power, np.array([0.0, 0.5, 1.0]) ** power)


def test_every_series_has_a_kernel_of_its_own() -> None:
    found = kernelsynth(np.random.default_rng(4), 6, 40)
    rng = np.random.default_rng(4)
    wanted = np.concatenate([draw(rng, random_composition(rng), 1, 40) for _ in range(6)])
    assert np.array_equal(found, wanted)


def test_draws_of_one_kernel_stand_together() -> None:
    found = kernelsynth(np.random.default_rng(4), 5, 40, draws=3)
    rng = np.random.default_rng(4)
    wanted = np.concatenate([draw(rng, random_composition(rng), n, 40) for n in (3, 2)])
    assert np.array_equal(found, wanted)


def test_the_bank_is_a_function_of_its_seed_and_standardised() -> None:
    bank = kernel_bank(7, kernels=8, draws=5, length=50)
    assert bank.shape == (40, 50)
    assert bank.dtype == np.float32
    assert np.array_equal(bank, kernel_bank(7, 8, 5, 50))
    assert not np.array_equal(bank, kernel_bank(8, 8, 5, 50))
    assert np.allclose(bank.mean(axis=1), 0, atol=1e-4)
    assert np.isin(bank.std(axis=1).round(3), (0.0, 1.0)).all()


def test_a_constant_series_becomes_zeros_and_not_amplified_rounding() -> None:
    kernel = Composition((BaseKernel("constant", 1.0), BaseKernel("linear", 10.0)), (True,))
    flat = draw(np.random.default_rng(0), Composition(kernel.bases[:1], ()), 3, 50)
    assert (np.ptp(flat, axis=1) < 1e-12).all()
    assert not standardised(flat).any()
    assert standardised(draw(np.random.default_rng(0), kernel, 3, 50)).std(axis=1).round(6).tolist() == [1, 1, 1]
