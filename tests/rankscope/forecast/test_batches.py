"""Batches are sized by the memory that is free, and halved where it was not enough after all."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from rankscope.forecast import batches
from rankscope.forecast.batches import MemoryRunsOutError, free_bytes, in_batches, ran_out, series_that_fit

CPU = torch.device("cpu")


def test_free_memory_is_some_of_the_machine_s() -> None:
    free = free_bytes(CPU)
    assert 2**20 < free < 2**46 if sys.platform == "linux" else free is None or free > 2**20


@pytest.mark.parametrize(("free", "each", "fits"), [(1000, 60, 10), (1000, 1, 16), (10, 60, 1), (None, 60, 16)])
def test_series_that_fit(monkeypatch: pytest.MonkeyPatch, free: int | None, each: int, fits: int) -> None:
    monkeypatch.setattr(batches, "free_bytes", lambda _: free)
    assert series_that_fit(each, 16, CPU) == fits


def limited(most: int, seen: list[list[int]], error: Exception) -> Any:
    def work(some: torch.Tensor) -> None:
        if len(some) > most:
            raise error
        seen.append(some.tolist())

    return work


FAILURES = [torch.OutOfMemoryError("CUDA"), MemoryError(), RuntimeError("can't allocate memory")]


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_batches_halve_where_memory_runs_out(error: Exception) -> None:
    seen: list[list[int]] = []
    cleared: list[bool] = []
    with pytest.warns(UserWarning, match="10 series per batch; continuing with 5") as caught:
        size = in_batches(torch.arange(12), 10, limited(2, seen, error), lambda: cleared.append(True))
    assert size == 2
    assert [len(one) for one in seen] == [2] * 6
    assert [place for one in seen for place in one] == list(range(12))
    assert len(caught) == len(cleared) == 2  # 10 → 5 → 2


def test_one_series_that_does_not_fit_is_an_error_of_one_line() -> None:
    with (
        pytest.warns(UserWarning, match="continuing with 1"),
        pytest.raises(MemoryRunsOutError, match="single series; use fewer samples"),
    ):
        in_batches(torch.arange(3), 2, limited(0, [], torch.OutOfMemoryError("CUDA out of memory")))


def test_other_errors_are_passed_on() -> None:
    assert not ran_out(RuntimeError("shapes differ"))
    with pytest.raises(RuntimeError, match="shapes differ"):
        in_batches(torch.arange(3), 2, limited(0, [], RuntimeError("shapes differ")))


@pytest.mark.parametrize("family", ["chronos-t5", "chronos-bolt"])
def test_forecasts_do_not_change_with_the_batches_that_fit(
    tmp_path: Path, write_checkpoint: Any, tiny_config: Any, uneven: Any, both: Any, monkeypatch: Any, family: str
) -> None:
    _, fast = both(write_checkpoint(tmp_path / family, tiny_config(family)))
    series = uneven(20, 30)
    greedy = {"num_samples": 1, "top_k": 1} if family == "chronos-t5" else {}
    whole = fast.predict(series, **greedy)
    home = "rankscope.forecast.fast" if family == "chronos-t5" else "rankscope.forecast.bolt"

    def cut(work: Any) -> Any:
        def less(some: torch.Tensor) -> None:
            if len(some) > 3:
                raise torch.OutOfMemoryError("CUDA out of memory")
            work(some)

        return less

    monkeypatch.setattr(
        f"{home}.in_batches", lambda order, size, work, *more: in_batches(order, size, cut(work), *more)
    )
    with pytest.warns(UserWarning, match="out of memory"):
        torch.testing.assert_close(fast.predict(series, **greedy), whole)


def test_a_batch_takes_about_what_is_estimated(t5_folder: Path, both: Any) -> None:
    from rankscope.forecast.decoding import bytes_per_series

    network = both(t5_folder)[1].model.network
    context = network.encode_context(torch.ones(3, 20, dtype=torch.long), torch.ones(3, 20, dtype=torch.bool))
    past = network.allocate(3 * 5, 7)
    taken = sum(part.nbytes for one in context for part in (one.keys, one.values))
    taken += sum(part.nbytes for one in past for part in one.flat)
    logits = 3 * 5 * 4 * 4 * network.vocabulary
    assert 3 * bytes_per_series(network, 20, 7, 5) == taken + logits
