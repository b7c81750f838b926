import numpy as np
import torch

from rankscope.families.series import standardised, unpadded

NAN = float("nan")


def test_each_series_has_mean_0_and_deviation_1() -> None:
    x = torch.randn(5, 200, generator=torch.Generator().manual_seed(0)) * 7 + 1e4
    x[2, ::3] = NAN
    z = standardised(x).double()
    np.testing.assert_allclose(z.nanmean(1), 0, atol=1e-6)
    np.testing.assert_allclose(z.square().nanmean(1), 1, atol=1e-5)
    assert torch.equal(z.isnan(), x.isnan())


def test_constant_series_become_zero() -> None:
    for value in (0.0, 3.0, 0.1, -1e9):
        assert torch.equal(standardised(torch.full((1, 7), value)), torch.zeros(1, 7))


def test_small_deviations_are_no_constants() -> None:
    x = torch.tensor([[1e-20, -1e-20, 1e-20, -1e-20]])
    assert standardised(x).abs().min() > 0.9


def test_gaps_are_bridged_and_ends_cut() -> None:
    series = torch.tensor([[NAN, NAN, 0.0, NAN, NAN, 3.0, NAN], [NAN] * 7, [5.0] * 7])
    rows = unpadded(standardised(series), 7)
    assert [len(row) for row in rows] == [4, 7]
    torch.testing.assert_close(rows[0], torch.tensor([-1.0, -1 / 3, 1 / 3, 1.0]))
    assert torch.equal(rows[1], torch.zeros(7))
