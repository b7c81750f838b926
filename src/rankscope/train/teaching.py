"""Distillation of a forecasting teacher into a Chronos-Bolt: its quantile forecasts are computed once, before training.

A teacher that samples is hundreds of times slower than its student learns, so that it answers for a fixed number of
generated series, of which every batch takes some; the others have the true future values alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.data import Dataset

from rankscope.engine import Progress
from rankscope.engine.randomness import seeded
from rankscope.errors import DataError, one_line
from rankscope.io.atomic import atomic_file
from rankscope.train import processes
from rankscope.train.config import PretrainConfig
from rankscope.train.models import QUANTILES
from rankscope.train.stream import left_padded

FOLDER = "teacher"
"""In the folder of a run: one file per chunk of answered series."""
CHUNK = 32
"""Series that the teacher answers at a time."""
FIRST = 2**40
"""Index of the first of them in the stream of the run, which no run reaches."""


def quantile_distance(
    student: Float[Tensor, "series quantiles horizon"],
    teacher: Float[Tensor, "series quantiles horizon"],
    asked: Float[Tensor, " series"],
) -> Float[Tensor, ""]:
    """Mean |student − teacher| over quantiles and horizon, of the series that are asked for.

    >>> float(quantile_distance(torch.zeros(2, 9, 4), torch.ones(2, 9, 4), torch.tensor([1.0, 0.0])))
    1.0
    """
    each = (student.float() - teacher.float()).abs().mean(dim=(1, 2))
    return (each * asked).sum() / asked.sum().clamp(min=1)


def answers(
    config: PretrainConfig, corpus: Any, run: Path, progress: Progress, device: str = "cpu", runtime: str = "stock"
) -> list[dict[str, Tensor]]:
    """Forecasts of the teacher for its series: those of the run, or what is missing of them is computed.

    A chunk's series and sample paths are a function of the seed and its number, so that an interrupted run goes on as
    an undisturbed one.

    Args:
        config: the run.
        corpus: its series by index.
        run: its folder.
        progress: called with the number of answered series, their total, and what happens.
        device: that the teacher computes on.
        runtime: that it computes by, see `rankscope.load_pipeline`.

    Returns:
        Rows with ``context`` (time,), ``target`` (horizon,) and ``answer`` (quantiles, horizon).

    Raises:
        DataError: the run has answers that are damaged.
    """
    from safetensors.torch import save_file

    count = -(-config.teacher.series // CHUNK)
    files = [run / FOLDER / f"{number:05d}.safetensors" for number in range(count)]

    def compute() -> None:
        missing = [number for number, file in enumerate(files) if not file.exists()]
        if not missing:
            return
        from rankscope import load_pipeline

        pipeline = load_pipeline(config.teacher.model, device=device, runtime=runtime)
        (run / FOLDER).mkdir(exist_ok=True)
        for number in missing:
            progress(number * CHUNK, config.teacher.series, "asking the teacher")
            begin = FIRST + number * CHUNK
            with seeded(int(np.random.default_rng([config.seed, 8, number]).integers(2**63))):
                columns = ask(pipeline, config, corpus.__getitems__(range(begin, begin + CHUNK)))
            with atomic_file(files[number]) as path:
                save_file(columns, path)

    processes.on_main(compute)
    found = []
    for file in files:
        columns = _read(file, config.horizon)
        found += [{name: column[i] for name, column in columns.items()} for i in range(CHUNK)]
    return found[: config.teacher.series]


def _read(file: Path, horizon: int) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    wanted = {"context": (CHUNK,), "target": (CHUNK, horizon), "answer": (CHUNK, len(QUANTILES), horizon)}
    try:
        columns = load_file(file)
        for name, shape in wanted.items():
            found = columns[name]
            if found.ndim != max(len(shape), 2) or found.shape[: len(shape)] != shape or found.dtype != torch.float32:
                raise ValueError(f"{name} is {found.dtype} of shape {tuple(found.shape)}")
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise DataError(
            f"{file} holds no answers of the teacher ({one_line(error)[:120]}). Delete the file, and it is asked again."
        ) from error
    return columns


def ask(pipeline: Any, config: PretrainConfig, rows: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Columns ``context``, ``target`` and ``answer`` of some series; a series without any observation reads as zeros.

    Args:
        pipeline: the teacher's.
        config: the run.
        rows: with ``context`` (time,) and ``target`` (horizon,).
    """
    context = left_padded(rows)
    empty = context.isnan().all(dim=1, keepdim=True)
    sampling = {"num_samples": config.teacher.paths} if pipeline.forecast_type.name == "SAMPLES" else {}
    series = list(context.masked_fill(empty, 0.0))
    quantiles, _ = pipeline.predict_quantiles(
        series, prediction_length=config.horizon, quantile_levels=list(QUANTILES), **sampling
    )
    steps = torch.stack([one.reshape(config.horizon, len(QUANTILES)) for one in quantiles])  # Chronos-2 returns a list
    target = torch.stack([row["target"] for row in rows])
    return {"context": context, "target": target, "answer": steps.float().transpose(1, 2).contiguous()}


class Taught(Dataset):
    """A corpus in whose batches some places are taken by the series that the teacher answered, in turn.

    Which series has an index is a function of the index alone, however the batches are dealt to processes.
    """

    def __init__(self, corpus: Any, config: PretrainConfig, rows: Sequence[dict[str, Tensor]]) -> None:
        """Put ``rows`` in the first ``teacher.share`` of each batch of ``corpus``."""
        self.corpus, self.stream = corpus, corpus.stream
        self.rows = rows
        self.batch = config.batch_size
        self.places = max(round(config.teacher.share * config.batch_size), 1)
        self.unanswered = torch.full_like(rows[0]["answer"], torch.nan)

    def __len__(self) -> int:
        return len(self.corpus)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Return the rows at ``indices``; ``answer`` is NaN where the teacher was not asked."""
        fresh = [index for index in indices if index % self.batch >= self.places]
        generated = dict(zip(fresh, self.corpus.__getitems__(fresh) if fresh else [], strict=True))
        return [
            {**generated[index], "answer": self.unanswered} if index in generated else self._taught(index)
            for index in indices
        ]

    def _taught(self, index: int) -> dict[str, Tensor]:
        batch, place = divmod(index, self.batch)
        return self.rows[(batch * self.places + place) % len(self.rows)]


def taught_loss(model: Any, batch: Mapping[str, Tensor], truth: float) -> Float[Tensor, ""]:
    """``truth`` · quantile loss of all series + (1 − ``truth``) · horizon · `quantile_distance` to the teacher.

    Both are sums over the horizon, as the loss without a teacher is: gradients are clipped alike with one and without.
    A series whose answer has an absurd value, as a teacher of coarse bins gives at a high level, counts as not asked.

    Args:
        model: a Chronos-Bolt.
        batch: what `ScaledCollator` makes, with ``answer`` (series, quantiles, horizon).
        truth: share of the loss that looks at the true future values.
    """
    forecast = model(context=batch["context"], target=batch["target"])
    answer = batch["answer"]
    asked = batch["asked"] * answer.isfinite().all(dim=2).all(dim=1)
    distance = quantile_distance(forecast.quantile_preds, answer.nan_to_num(), asked)
    return truth * forecast.loss + (1 - truth) * answer.shape[-1] * distance  # type: ignore[no-any-return]
