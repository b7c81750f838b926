"""Singular values of quasimatrices against closed forms: Legendre polynomials, exponentials, kinks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import legendre

from rankscope.errors import OptionError
from rankscope_paper.bounds import quasimatrix, singular_values


def test_scaled_legendre_polynomials_are_orthogonal() -> None:
    heights = np.array([3.0, -2.0, 0.5, 1e-3, 1e-6])

    def values(x: np.ndarray) -> np.ndarray:
        return heights[:, None] * np.stack([legendre.Legendre.basis(n)(x) for n in range(5)])

    exact = np.abs(heights) * np.sqrt(2 / (2 * np.arange(5) + 1))
    np.testing.assert_allclose(singular_values(values), np.sort(exact)[::-1], rtol=0, atol=1e-10 * exact.max())


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-20, 20), min_size=2, max_size=5, unique=True))
def test_exponentials_match_their_gram_matrix(rates: list[float]) -> None:
    a = np.array(rates) / 4
    total = a[:, None] + a[None, :]
    gram = 2 * np.where(np.abs(total) > 1e-9, np.sinh(total) / np.where(total == 0, 1, total), 1.0)
    exact = np.sqrt(np.clip(np.linalg.eigvalsh(gram)[::-1], 0, None))
    got = singular_values(lambda x: np.exp(a[:, None] * x))
    # the roots of eigenvalues are good to 1e-8 of the largest
    np.testing.assert_allclose(got, exact, atol=3e-8 * exact[0])


def test_kinks_need_breaks() -> None:
    # |x − a| and 1: ∫(x−a)² = 2/3 + 2a², ∫|x−a| = 1 + a²
    a = 0.3
    gram = np.array([[2 / 3 + 2 * a * a, 1 + a * a], [1 + a * a, 2]])
    exact = np.sqrt(np.linalg.eigvalsh(gram)[::-1])

    def values(x: np.ndarray) -> np.ndarray:
        return np.stack([np.abs(x - a), np.ones_like(x)])

    np.testing.assert_allclose(singular_values(values, breaks=[a]), exact, rtol=1e-12)


def test_what_does_not_settle_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quasimatrix, "_LAST", 64)
    with pytest.raises(OptionError, match="did not settle to 1e-10 with 64 nodes"):
        singular_values(lambda x: np.stack([np.abs(x - 0.3), np.ones_like(x)]))
    with pytest.raises(OptionError, match="not finite"):
        singular_values(lambda x: np.stack([np.where(x > 0, np.inf, 1.0)]))


def test_more_functions_than_first_nodes() -> None:
    names = range(40)
    got = singular_values(lambda x: np.stack([legendre.Legendre.basis(n)(x) for n in names]))
    np.testing.assert_allclose(got, np.sqrt(2 / (2 * np.arange(40) + 1)), rtol=1e-10)
