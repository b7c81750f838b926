"""The stock pipelines over the runtime's models: all else, rules and signatures, is the stock code."""

from __future__ import annotations

from typing import Any

from chronos.chronos import ChronosModel, ChronosPipeline
from chronos.chronos_bolt import ChronosBoltPipeline
from torch import Tensor

from rankscope.errors import FamilyError, OptionError
from rankscope.forecast.batches import in_batches, lengths_of, series_that_fit
from rankscope.forecast.bolt import FastBoltModel
from rankscope.forecast.decoding import Graphs, bytes_per_series, draw
from rankscope.forecast.sampling import Sampler
from rankscope.forecast.t5 import T5Network

ROWS = 320
"""Sample paths that are decoded side by side on a CPU, if memory allows: more fall out of its caches."""
GPU_ROWS = 8192
"""The same on a GPU, where more fill it no better."""


class FastChronosModel(ChronosModel):
    """The stock `ChronosModel` with the runtime in the place of ``generate``.

    Args:
        stock: the model whose weights are used and whose config holds.
    """

    def __init__(self, stock: ChronosModel) -> None:
        super().__init__(stock.config, stock.model)
        self._build()

    def _build(self) -> None:
        self.network = T5Network(self.model)
        self.graphs = Graphs() if self.device.type == "cuda" else None

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        prediction_length: int | None = None,
        num_samples: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> Tensor:
        """Draw tokens (series, samples, horizon); arguments and defaults are those of the stock method."""
        config = self.config
        if (self.network.device, self.network.dtype) != (self.device, self.model.dtype):  # the module was moved
            self._build()
        horizon = config.prediction_length if prediction_length is None else prediction_length
        paths = config.num_samples if num_samples is None else num_samples
        sampler = Sampler(
            temperature=config.temperature if temperature is None else temperature,
            top_k=config.top_k if top_k is None else top_k,
            top_p=config.top_p if top_p is None else top_p,
            never=config.eos_token_id,
        )
        kept = attention_mask.bool()
        order = lengths_of(kept).argsort(descending=True, stable=True)
        drawn = input_ids.new_empty(len(input_ids), paths, horizon)

        def work(some: Tensor) -> None:
            drawn[some] = draw(self.network, input_ids[some], kept[some], horizon, paths, sampler, self.graphs)

        each = bytes_per_series(self.network, input_ids.shape[1], horizon, paths)
        rows = GPU_ROWS if self.device.type == "cuda" else ROWS
        in_batches(order, series_that_fit(each, max(1, rows // paths), self.device), work, self._forget)
        return drawn

    def _forget(self) -> None:
        """Give back what is kept from batch to batch."""
        self.network.forget()
        if self.graphs is not None:
            self.graphs.known.clear()


class FastChronosPipeline(ChronosPipeline):
    """`ChronosPipeline` over the runtime: same methods, same signatures."""

    def __init__(self, stock: ChronosPipeline) -> None:
        super().__init__(tokenizer=stock.tokenizer, model=FastChronosModel(stock.model))

    def predict(
        self, inputs: Any, prediction_length: int | None = None, num_samples: int | None = None, **how: Any
    ) -> Tensor:
        """Draw sample paths; see `ChronosPipeline.predict`.

        Raises:
            OptionError: the horizon or the number of samples is below 1, or the options of the sampler are unusable.
            NotFiniteError: logits are not finite.
            MemoryRunsOutError: memory is not enough for one series.
        """
        check_counts(prediction_length=prediction_length, num_samples=num_samples)
        return super().predict(inputs, prediction_length, num_samples, **how)


class FastBoltPipeline(ChronosBoltPipeline):
    """`ChronosBoltPipeline` over the runtime: same methods, same signatures."""

    def __init__(self, stock: ChronosBoltPipeline) -> None:
        super().__init__(model=stock.model)
        self.model: Any = FastBoltModel(stock.model)

    def predict(
        self, inputs: Any, prediction_length: int | None = None, limit_prediction_length: bool = False
    ) -> Tensor:
        """Forecast quantiles; see `ChronosBoltPipeline.predict`.

        Raises:
            OptionError: the horizon is below 1.
        """
        check_counts(prediction_length=prediction_length)
        return super().predict(inputs, prediction_length, limit_prediction_length)


def check_counts(**counts: int | None) -> None:
    """Refuse counts below 1, where they are given.

    Raises:
        OptionError: one is.
    """
    for name, count in counts.items():
        if count is not None and count < 1:
            raise OptionError(f"{name} is {count}: it must be at least 1.")


def is_known(pipeline: Any) -> bool:
    """True if the runtime knows the model of a stock pipeline: Chronos-T5 and Chronos-Bolt, however compressed."""
    if isinstance(pipeline, ChronosPipeline):
        return pipeline.model.config.model_type == "seq2seq"
    return isinstance(pipeline, ChronosBoltPipeline)


def make_fast(pipeline: Any) -> FastChronosPipeline | FastBoltPipeline:
    """Build the fast pipeline of a stock one; both share the weights, and the stock module stays ``inner_model``.

    Weights are laid out anew, and little is derived from them: change them before, or build it again.

    Raises:
        FamilyError: the runtime does not know the model.
    """
    if not is_known(pipeline):
        raise FamilyError(
            f"runtime fast knows Chronos-T5 and Chronos-Bolt, not a {type(pipeline).__name__}: use runtime stock."
        )
    return (FastChronosPipeline if isinstance(pipeline, ChronosPipeline) else FastBoltPipeline)(pipeline)
