import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from rankscope.errors import DataError, OptionError
from rankscope.series.image_sets import image_batches
from rankscope.series.images import images


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
    with pytest.raises(OptionError, match="at least 1, got 0"):
        list(image_batches("generated", 0, 32))
