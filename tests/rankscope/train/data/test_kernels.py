"""KernelSynth series and the bank that training draws from."""

from __future__ import annotations

import numpy as np

from rankscope.train.data.base_kernels import BaseKernel, Composition, random_composition
from rankscope.train.data.gaussian import draw
from rankscope.train.data.kernels import kernel_bank, kernelsynth, standardised


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
