"""Compressed text models against their original."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.compress.calibration import CalibrationSet
from rankscope.compress.probe import PROBE_SEED, PROBED_WINDOWS
from rankscope.engine.device import resolve_dtype
from rankscope.engine.progress import Progress
from rankscope.errors import FamilyError, OptionError
from rankscope.measure.table2 import DatasetScore, Measures, Original
from rankscope_eval.overlap import mean_overlap, teacher_passes, top_tokens
from rankscope_eval.text import calibration_windows, log_perplexity, read_tokens, text_windows
from rankscope_eval.timing import time_against
from rankscope_eval.yard import TIMED, Yard, common_settings, counts, sizes

DEFAULT = "text:256"


class TextYardstick:
    """Log-perplexity and the overlap of tokens over windows of a text; calibration looks at another part of it."""

    def __init__(self, checkpoint: Checkpoint, yard: Yard) -> None:
        if yard.text is None:
            raise OptionError(
                f"{checkpoint.source} is a {checkpoint.family.title} model, with which rankscope forecasts no series: "
                "give it a text (--text FILE)."
            )
        for name in ("suite", "data", "max_series"):
            if getattr(yard, name) is not None:
                raise OptionError(f"{name} says how to score forecasts, but {checkpoint.source} is a text model.")
        if not any(site.stack == "decoder" for site in checkpoint.sites(["all"])):
            raise FamilyError(f"{checkpoint.source} has no decoder: only encoder-decoder models predict text.")
        self.checkpoint, self.yard = checkpoint, replace(yard, calibration=yard.calibration or DEFAULT)
        self._count = _text_count(yard.calibration or DEFAULT)
        self.tokens = read_tokens(yard.text, checkpoint)
        self.windows = text_windows(self.tokens, yard.overlap_series)
        self.calibration(0)

    def settings(self) -> dict[str, Any]:
        """The text, by its tokens, seeds and device."""
        digest = hashlib.sha256(self.tokens.numpy().tobytes()).hexdigest()[:16]
        return {"text": digest, "windows": len(self.windows), **common_settings(self.yard)}

    def calibration(self, seed: int) -> CalibrationSet:
        """Windows of the first half of the text."""
        return calibration_windows(self.tokens, self._count, seed)

    def probe(self, seed: int) -> CalibrationSet | None:
        """Other windows of the first half of the text."""
        return calibration_windows(self.tokens, PROBED_WINDOWS, seed + PROBE_SEED)

    def original(self, progress: Progress) -> Original:
        """Measure how well the original expects the text."""
        return replace(
            sizes(self.checkpoint), LPPL=log_perplexity(self._module, self.checkpoint, self.windows, progress)
        )

    def compare(
        self, folder: Path, original: Original, progress: Progress
    ) -> tuple[Measures, tuple[DatasetScore, ...]]:
        """Measure log-perplexity, overlap and the time of a pass."""
        smaller = open_checkpoint(folder)
        module = self._module_of(smaller)
        lppl = log_perplexity(module, smaller, self.windows, progress)
        tokens = top_tokens(module, smaller.family, self.windows, progress=progress)
        progress(0, 0, "time")
        versus = time_against(self._forward(self._module), self._forward(module))
        measures = Measures(
            relative_LPPL=lppl / original.LPPL if original.LPPL else None,
            overlap=mean_overlap(self._tokens, tokens),
            **counts(sizes(smaller)),
            forecast_seconds=median(versus.second),
            time_ratio=versus.ratio,
        )
        return measures, ()

    def _module_of(self, checkpoint: Checkpoint) -> Any:
        return checkpoint.module(resolve_dtype(self.yard.how.dtype) or torch.float32).to(self.yard.how.device)

    @cached_property
    def _module(self) -> Any:
        return self._module_of(self.checkpoint)

    @cached_property
    def _tokens(self) -> Tensor:
        return top_tokens(self._module, self.checkpoint.family, self.windows)

    def _forward(self, module: Any) -> Callable[[], Any]:
        batch = next(teacher_passes(module, self.checkpoint.family, self.windows, TIMED))

        @torch.no_grad()
        def run() -> Any:
            return module(**batch.inputs).logits.sum().cpu()

        return run


def _text_count(name: str) -> int:
    kind, _, number = name.partition(":")
    if kind != "text" or not number.isdigit() or int(number) < 1:
        raise OptionError(f"calibration {name!r} is of no use with a text model: try {DEFAULT}, windows of its text.")
    return int(number)
