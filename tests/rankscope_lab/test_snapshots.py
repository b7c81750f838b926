"""States of trainings: written, read, put back, refused."""

import pytest
import torch
from torch import nn

from rankscope.errors import DataError
from rankscope_lab.snapshots import read_state, restore_training, training_tensors, write_state


def made(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    model.unused = nn.Parameter(torch.randn(2))
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def steps(model, adam, count):
    for _ in range(count):
        adam.zero_grad()
        model(torch.linspace(-1, 1, 15).view(5, 3)).square().mean().backward()
        adam.step()


def test_a_training_that_was_put_back_goes_on_as_it_would_have(tmp_path):
    """Weights, running statistics and the optimiser's moments: three steps, a stop, two more; against five."""
    whole, adam = made(0)
    steps(whole, adam, 5)
    first, adam = made(0)
    steps(first, adam, 3)
    write_state(tmp_path / "a" / "state", training_tensors(first, adam), {"epoch": 3})
    other, adam = made(1)
    found = read_state(tmp_path / "a" / "state")
    assert found is not None
    tensors, about = found
    assert about == {"epoch": 3}
    restore_training(tensors, other, adam)
    steps(other, adam, 2)
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value, rtol=0, atol=0, msg=name)


def test_no_file_a_damaged_file_and_another_model(tmp_path):
    assert read_state(tmp_path / "state") is None
    (tmp_path / "state").write_bytes(b"12345678 not a state")
    with pytest.raises(DataError, match="cannot be read: delete it"):
        read_state(tmp_path / "state")
    model, adam = made(0)
    with pytest.raises(KeyError):
        restore_training({}, model, adam)
