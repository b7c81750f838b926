import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from rankscope.errors import DataError, OptionError
from rankscope.series.images import CLASSES, image_batches, images, natural_noise


def test_pixels_labels_and_seed() -> None:
    pixels, labels = images(30, 16, 3)
    assert pixels.shape == (30, 3, 16, 16)
    assert pixels.dtype == torch.float32
    assert 0 <= float(pixels.min()) < 0.25
    assert 0.75 < float(pixels.max()) <= 1
    assert torch.bincount(labels).tolist() == [3] * len(CLASSES)
    assert torch.equal(pixels, images(30, 16, 3)[0])
    assert not torch.equal(pixels, images(30, 16, 4)[0])


def test_an_image_does_not_depend_on_how_many_are_drawn() -> None:
    every, labels = images(23, 16, 0)
    assert torch.equal(images(7, 16, 0)[0], every[:7])
    part, part_labels = images(5, 16, 0, first=18)
    assert torch.equal(part, every[18:])
    assert torch.equal(part_labels, labels[18:])


def test_power_of_the_noise_falls_as_one_over_frequency_squared() -> None:
    rng = np.random.default_rng(0)
    size = 64
    power = np.mean([np.abs(np.fft.fft2(natural_noise(size, rng))) ** 2 for _ in range(60)], axis=0)
    f = np.hypot(np.fft.fftfreq(size)[:, None], np.fft.fftfreq(size)[None, :])
    kept = (f > 0) & (f < 0.4)
    slope = np.polyfit(np.log(f[kept]), np.log(power[kept]), 1)[0]
    assert slope == pytest.approx(-2, abs=0.05)


def test_patterns_can_be_told_apart() -> None:
    """The nearest class mean of spectra, which a shift leaves alone, is right far more often than by chance."""
    pixels, labels = images(600, 16, 0)
    grey = pixels.mean(1) - pixels.mean((1, 2, 3))[:, None, None]
    features = torch.fft.rfft2(grey).abs().flatten(1).log1p()
    known, asked = slice(0, 400), slice(400, 600)
    means = torch.stack([features[known][labels[known] == c].mean(0) for c in range(len(CLASSES))])
    right = torch.cdist(features[asked], means).argmin(1) == labels[asked]
    assert float(right.float().mean()) > 0.35  # 0.1 by chance


@pytest.mark.parametrize(("n", "size", "seed"), [(0, 16, 0), (1, 7, 0), (1, 16, -1)])
def test_bad_numbers_are_named(n: int, size: int, seed: int) -> None:
    with pytest.raises(OptionError, match="is not usable: give a whole number"):
        images(n, size, seed)


def stand_in(monkeypatch: pytest.MonkeyPatch, load: Any) -> None:
    module = ModuleType("datasets")
    module.load_dataset = load  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda self, name, timeout: None)


def test_batches_of_generated_images_are_one_draw() -> None:
    batches = list(image_batches("generated", 11, 16, seed=4, batch_size=4))
    assert [len(batch) for batch in batches] == [4, 4, 3]
    assert torch.equal(torch.cat(batches), images(11, 16, 4)[0])


def test_cifar_pixels_come_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (9, 32, 32, 3), dtype=np.uint8)
    stand_in(monkeypatch, lambda name, split: [{"img": Image.fromarray(x)} for x in pixels])
    got = torch.cat(list(image_batches("cifar10", 5, 224, seed=1, batch_size=2)))
    assert got.shape == (5, 3, 32, 32)
    back = (got.permute(0, 2, 3, 1) * 255).round().to(torch.uint8).numpy()
    found = [int(np.flatnonzero((pixels == x).all((1, 2, 3)))[0]) for x in back]
    assert found == sorted(set(found))
    assert len(list(image_batches("cifar10", 100, 32))) == 1  # there are only nine


def test_without_a_network_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ConnectionError("no route to host\nmore")

    stand_in(monkeypatch, fail)
    with pytest.raises(
        DataError, match=r"cifar10 from the hub \(ConnectionError: no route to host\); connect"
    ) as error:
        list(image_batches("cifar10", 5, 32))
    assert "\n" not in str(error.value)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"pip install 'rankscope\[hub\]'"):
        list(image_batches("cifar10", 5, 32))


def test_bad_options() -> None:
    with pytest.raises(OptionError, match="did you mean 'cifar10'"):
        list(image_batches("cifar", 5, 32))
    with pytest.raises(OptionError, match="n 0 is not usable"):
        list(image_batches("generated", 0, 32))
