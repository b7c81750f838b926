"""Fast pipelines: the stock chronos-forecasting pipelines with fast models, same signatures and semantics."""

from __future__ import annotations

from typing import Any

from chronos.chronos import ChronosModel, ChronosPipeline
from chronos.chronos_bolt import ChronosBoltPipeline
from torch import Tensor

from rankscope.errors import FamilyError, check_count
from rankscope.forecast.batches import in_batches, lengths_of, series_that_fit
from rankscope.forecast.bolt import FastBoltModel
from rankscope.forecast.decoding import Graphs, bytes_per_series, draw
from rankscope.forecast.sampling import Sampler
from rankscope.forecast.t5 import T5Network

ROWS = 320
"""Maximum sample paths per batch on a CPU; more exceed its caches."""
GPU_ROWS = 8192
"""Maximum sample paths per batch on a GPU; more do not improve throughput."""


class FastChronosModel(ChronosModel):
    """`ChronosModel` with fast decoding instead of ``generate``.

    Args:
        stock: model that provides weights and config.
    """

    def __init__(self, stock: ChronosModel) -> None:
        super().__init__(stock.config, stock.model)
        self._build()

    def __getstate__(self) -> dict[str, Any]:
        return {name: one for name, one in super().__getstate__().items() if name not in ("network", "graphs")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
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
        """Sample tokens (series, samples, horizon); arguments and defaults as in the stock method."""
        config = self.config
        if (self.network.device, self.network.dtype) != (self.device, self.model.dtype):  # the module was moved or cast
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
        in_batches(order, series_that_fit(each, max(1, rows // paths), self.device), work, self._free_buffers)
        return drawn

    def _free_buffers(self) -> None:
        """Free the buffers kept between batches."""
        self.network.free_buffers()
        if self.graphs is not None:
            self.graphs.known.clear()


class FastChronosPipeline(ChronosPipeline):
    """Fast `ChronosPipeline` with the same methods and signatures."""

    def __init__(self, stock: ChronosPipeline) -> None:
        super().__init__(tokenizer=stock.tokenizer, model=FastChronosModel(stock.model))

    def predict(
        self,
        inputs: Any,
        prediction_length: int | None = None,
        num_samples: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        limit_prediction_length: bool = False,
    ) -> Tensor:
        """Sample forecast paths; see `ChronosPipeline.predict`.

        Raises:
            OptionError: the horizon or the number of samples is below 1, or a sampling option is invalid.
            NotFiniteError: logits are not finite.
            MemoryRunsOutError: not enough memory for a single series.
        """
        for name, count in (("prediction_length", prediction_length), ("num_samples", num_samples)):
            if count is not None:
                check_count(name, count)
        return super().predict(
            inputs, prediction_length, num_samples, temperature, top_k, top_p, limit_prediction_length
        )


class FastBoltPipeline(ChronosBoltPipeline):
    """Fast `ChronosBoltPipeline` with the same methods and signatures."""

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
        if prediction_length is not None:
            check_count("prediction_length", prediction_length)
        return super().predict(inputs, prediction_length, limit_prediction_length)


def make_fast(pipeline: Any) -> FastChronosPipeline | FastBoltPipeline:
    """Build a fast pipeline that shares the weights of a stock one, which stays available as ``inner_model``.

    Weights are repacked, those of the given model too, and some tensors are derived from them: modify weights before,
    or rebuild the pipeline. The given model still forecasts, and ``save_pretrained`` saves it; its weights may share
    memory or be column-major now, which safetensors' ``save_file`` and ``save_model`` refuse.
    A fast pipeline is returned as it is.

    Raises:
        FamilyError: unsupported model.
    """
    if isinstance(pipeline, FastChronosPipeline | FastBoltPipeline):
        return pipeline
    if isinstance(pipeline, ChronosBoltPipeline):
        return FastBoltPipeline(pipeline)
    if isinstance(pipeline, ChronosPipeline) and pipeline.model.config.model_type == "seq2seq":
        return FastChronosPipeline(pipeline)
    raise FamilyError(
        f"runtime fast supports Chronos-T5 and Chronos-Bolt, not {type(pipeline).__name__}; use runtime stock."
    )
