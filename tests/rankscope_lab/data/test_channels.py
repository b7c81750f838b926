"""The channel benchmark, against the check values of the audit's specification and its formula, step by step."""

import math

import numpy as np
import pytest

from rankscope.errors import OptionError
from rankscope_lab.data.channels import bin_edges, bin_of, channel_benchmark


@pytest.mark.parametrize(
    ("channels", "series", "seed", "first", "last", "outcome", "edges", "variance"),
    [
        (4, 512, 0, (-1.13130, -1.37814, -1.43852, -1.33139), -1.37587, (-1.97328, -1.25316, -0.66332),
         (-1.37623, -0.48803, 0.49378, 1.39192), 0.53737),
        (8, 512, 0, (-1.13130, -1.37814, -1.43852, -1.33139), -0.98519, (-1.97328, -1.25316, -0.66332),
         (-1.39018, -0.49555, 0.49434, 1.37903), 0.54184),
        (16, 512, 0, (-1.13130, -1.37814, -1.43852, -1.33139), -0.15553, (-1.97328, -1.25316, -0.66332),
         (-1.38549, -0.49503, 0.48609, 1.37007), 0.53645),
        (4, 256, 99, (-1.04377, -1.32870, -1.48712, -1.30440), 0.25142, (0.07678, 0.05930, -0.25926),
         (-1.38167, -0.49362, 0.48834, 1.37757), 0.53627),
    ],
)  # fmt: skip
def test_published_check_values(channels, series, seed, first, last, outcome, edges, variance):
    made = channel_benchmark(channels, series, seed)
    assert made.inputs.shape == (series, 160, channels)
    np.testing.assert_allclose(made.inputs[0, :4, 0], first, atol=6e-6)
    assert made.inputs[-1, -1, -1] == pytest.approx(last, abs=6e-6)
    np.testing.assert_allclose(made.outcome[0, 7:10], outcome, atol=6e-6)
    np.testing.assert_allclose(made.edges[[1, 8, 24, 31]], edges, atol=6e-6)
    assert made.outcome.var() == pytest.approx(variance, abs=6e-6)


def test_outcome_is_the_formula_step_by_step():
    made = channel_benchmark(5, 3, 11)
    for series in range(3):
        s = made.inputs[series].astype(float)
        for t in range(160):
            expected = 0.0
            if t >= 7:
                expected = math.tanh(s[t - 3, 0] * s[t, 1]) + 0.6 * math.sin(1.3 * s[t - 7, 2])
                expected += 0.4 * s[t, 0] if s[t, 3] > 0 else 0.0
            assert made.outcome[series, t] == pytest.approx(expected, abs=1e-5)


def test_channels_are_standardised_and_bins_hold_what_the_leading_zeros_make_of_them():
    made = channel_benchmark(4, 512, 0)
    np.testing.assert_allclose(made.inputs.mean(1), 0, atol=1e-6)
    np.testing.assert_allclose(made.inputs.std(1), 1, atol=1e-4)
    share = np.bincount(made.labels.ravel(), minlength=32) / made.labels.size
    assert made.edges[16] == 0
    assert 0.051 <= share[16] <= 0.057
    assert 0.005 <= share[15] <= 0.012
    assert (made.labels[:, :7] == 16).all()


def test_fewer_series_are_a_prefix_of_more():
    few, many = channel_benchmark(4, 5, 3), channel_benchmark(4, 9, 3)
    np.testing.assert_array_equal(few.inputs, many.inputs[:5])


def test_bins_count_edges_at_or_below_and_clip():
    edges = np.array([0.0, 1.0, 2.0, 3.0])
    values = np.array([-5.0, 0.0, 0.5, 1.0, 2.0, 2.999, 3.0, 9.0])
    slow = [min(max(sum(edge <= value for edge in edges) - 1, 0), 2) for value in values]
    assert bin_of(values, edges).tolist() == slow
    widened = bin_edges(np.arange(9.0), bins=4)
    np.testing.assert_allclose(widened, [-0.001, 2, 4, 6, 8.001])


@pytest.mark.parametrize(("channels", "series", "length"), [(3, 5, 160), (4, 0, 160), (4, 5, 7)])
def test_sizes_out_of_range_are_refused(channels, series, length):
    with pytest.raises(OptionError, match="at least"):
        channel_benchmark(channels, series, 0, length=length)
