"""Scores over sources of data: tasks of one source are no independent evidence."""

from __future__ import annotations

import pytest

from rankscope_eval.bases import judge_by_base


@pytest.mark.parametrize(("sources", "known"), [("aaaa", False), ("aabb", False), ("aabc", True)])
def test_fewer_than_three_sources_have_no_interval(sources: str, known: bool) -> None:
    model, baseline = ({f"{at}": score for at in range(4)} for score in (0.9, 1.0))
    found = judge_by_base(model, baseline, lambda task: sources[int(task)], 0.02)
    assert (found.interval is not None) is known
    assert (found.tasks, found.bases) == (4, len(set(sources)))
    assert found.ratio == pytest.approx(0.9)
