from dataclasses import asdict

import numpy as np
import pytest
import pywt

from rankscope.errors import CheckpointError, DataError
from rankscope.families.models.wavelets import SPECIAL, WaveletTokens, universal_threshold


@pytest.mark.parametrize("wavelet", ["bior2.2", "haar", "db4", "bior4.4"])
@pytest.mark.parametrize("level", [1, 3])
@pytest.mark.parametrize("length", [8, 64, 120])
def test_perfect_reconstruction(wavelet: str, level: int, length: int) -> None:
    tokens = WaveletTokens(wavelet, level)
    x = np.random.default_rng(0).standard_normal(length)
    parts = tokens.decompose(x)
    assert sum(map(len, parts)) == length
    np.testing.assert_allclose(pywt.waverec(parts, wavelet, mode="periodization"), x, atol=1e-12)


def test_haar_is_sums_and_differences() -> None:
    x = np.array([4.0, 2.0, 5.0, 5.0])
    coarse, fine = WaveletTokens("haar").decompose(x)
    np.testing.assert_allclose(coarse, np.array([6.0, 10.0]) / np.sqrt(2))
    np.testing.assert_allclose(np.abs(fine), np.array([2.0, 0.0]) / np.sqrt(2), atol=1e-15)


def test_a_line_has_no_detail_inside() -> None:
    """bior2.2 has two vanishing moments: away from the wrapped ends a straight line leaves no detail."""
    _, fine = WaveletTokens().decompose(np.arange(40.0))
    np.testing.assert_allclose(fine[2:-2], 0, atol=1e-12)
    assert np.abs(fine).max() > 1


def test_a_bin_is_never_off_by_more_than_half_its_width() -> None:
    tokens = WaveletTokens()
    x = np.random.default_rng(1).uniform(-tokens.limit, tokens.limit, 5000)
    ids = tokens.quantise(x)
    centres = np.linspace(-tokens.limit, tokens.limit, tokens.n_tokens - SPECIAL)
    half = tokens.limit / (len(centres) - 1)
    error = np.abs(centres[ids - SPECIAL] - x)
    assert error.max() <= half * (1 + 1e-9)
    assert error.max() > 0.9 * half
    np.testing.assert_array_equal(ids - SPECIAL, np.abs(x[:, None] - centres).argmin(1))
    assert ids.min() >= SPECIAL
    np.testing.assert_array_equal(tokens.quantise(np.array([-1e9, 1e9])), [SPECIAL, tokens.n_tokens - 1])


def test_the_oldest_values_are_dropped() -> None:
    tokens = WaveletTokens(level=2)
    x = np.random.default_rng(3).standard_normal(23)
    np.testing.assert_array_equal(tokens.encode(x), tokens.encode(x[3:]))
    with pytest.raises(DataError, match="3 values is too short for a wavelet of level 2: give at least 4"):
        tokens.encode(x[:3])


def test_the_universal_threshold_kills_noise_and_keeps_a_spike() -> None:
    rng = np.random.default_rng(4)
    noise = 0.3 * rng.standard_normal(4096)
    spiky = noise.copy()
    spiky[100] = 10.0
    kept = universal_threshold([np.zeros(4), spiky])[1]
    assert kept[100] == 10.0
    assert np.count_nonzero(kept) <= 4  # about one in 2√(π ln n) noises survives somewhere
    want = np.median(np.abs(noise)) / 0.67449 * np.sqrt(2 * np.log(4096))
    edge = np.array([want * 0.99, want * 1.01])
    survivors = universal_threshold([edge, noise])[0]  # 2 more details move the threshold by far less than 1%
    np.testing.assert_array_equal(survivors != 0, [False, True])
    plain, cut = WaveletTokens(), WaveletTokens(threshold="universal")
    series = np.sin(np.arange(256) / 40) + 0.01 * rng.standard_normal(256)
    zero = plain.quantise(np.zeros(1))[0]
    assert (cut.encode(series)[128:] == zero).mean() > 0.9
    np.testing.assert_array_equal(cut.encode(series)[:128], plain.encode(series)[:128])


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (None, "must be an object"),
        ({"wavelet": "bior22"}, "did you mean 'bior2.2'"),
        ({"threshold": "soft"}, "wavetoken.threshold 'soft' is not known"),
        ({"level": 0}, "level must be at least 1"),
        ({"level": "1"}, "wavetoken.level is '1'"),
        ({"n_tokens": 3}, "vocabulary at least 4"),
        ({"limit": float("nan")}, "limit above 0"),
    ],
)
def test_bad_settings_are_named(part: object, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        WaveletTokens.of(part)


def test_settings_survive_a_config() -> None:
    tokens = WaveletTokens("db4", 2, 512, 10.0, "universal")
    assert WaveletTokens.of({**asdict(tokens), "context_length": 64}) == tokens
