import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from chronos import BaseChronosPipeline

from rankscope import load_pipeline
from rankscope.compress import CompressOptions, compress
from rankscope.engine.device import computing_dtype
from rankscope.errors import CheckpointError, FamilyError, OptionError
from rankscope.forecast.fast import make_fast

KINDS = ("chronos-t5", "chronos-bolt", "chronos-2")

STOCK = """
import sys, torch, rankscope
from chronos import BaseChronosPipeline
made = {}
for folder in sys.argv[2:]:
    pipeline = BaseChronosPipeline.from_pretrained(folder)
    torch.manual_seed(7)
    values = pipeline.predict([torch.sin(torch.arange(24.0))], prediction_length=6)
    made[folder] = (type(pipeline).__name__, torch.stack(list(values)))
torch.save(made, sys.argv[1])
"""


@pytest.mark.slow
def test_stock_loader_gives_identical_forecasts(tmp_path: Path, write_checkpoint: Any, tiny_config: Any) -> None:
    """Plain chronos-forecasting code in a process of its own, with `import rankscope` as the only addition."""
    folders = [tmp_path / f"{kind}-small" for kind in KINDS]
    for kind, folder in zip(KINDS, folders, strict=True):
        # Equal depths: transformers 5 sizes the decoder's cache by the encoder's depth.
        source = write_checkpoint(tmp_path / kind, tiny_config(kind, num_decoder_layers=2))
        report = compress(source, CompressOptions(eps=0.6), out=folder)
        assert any(site.layout == "factored" for site in report.sites)
    arguments = [sys.executable, "-c", STOCK, str(tmp_path / "made.pt"), *map(str, folders)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    made = torch.load(tmp_path / "made.pt", weights_only=True)
    for folder in folders:
        name, stock = made[str(folder)]
        pipeline = load_pipeline(folder)
        torch.manual_seed(7)
        ours = torch.stack(list(pipeline.predict([torch.sin(torch.arange(24.0))], prediction_length=6)))
        assert type(pipeline).__name__ == name
        assert torch.equal(stock, ours)


def test_stock_checkpoints_load_as_chronos_loads_them(shared_folder: Path) -> None:
    from chronos import BaseChronosPipeline

    for name in ("dummy-chronos-model", "dummy-chronos-bolt-model", "dummy-chronos2-model"):
        folder = shared_folder / "models" / name
        stored = BaseChronosPipeline.from_pretrained(str(folder)).inner_model.dtype
        ours = load_pipeline(folder)
        assert ours.inner_model.dtype == computing_dtype("cpu", stored)
        stock = BaseChronosPipeline.from_pretrained(str(folder), dtype=ours.inner_model.dtype)
        assert type(stock) is type(ours)
        made = []
        for pipeline in (stock, ours):
            torch.manual_seed(0)
            made.append(torch.stack(list(pipeline.predict([torch.arange(20.0)], prediction_length=4))))
        assert torch.equal(*made)


@pytest.mark.parametrize("kind", KINDS)
def test_dtype_is_taken(kind: str, tmp_path: Path, write_checkpoint: Any, tiny_config: Any) -> None:
    folder = write_checkpoint(tmp_path / "m", tiny_config(kind))
    assert load_pipeline(folder).inner_model.dtype == torch.float32
    assert load_pipeline(folder, dtype="bfloat16").inner_model.dtype == torch.bfloat16
    assert load_pipeline(folder, dtype=torch.bfloat16).inner_model.dtype == torch.bfloat16
    assert not load_pipeline(folder).inner_model.training


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("runtime", ["stock", "auto"])
@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_is_computed_where_the_processor_multiplies_it(
    kind: str, runtime: str, there: bool, tmp_path: Path, write_checkpoint: Any, tiny_config: Any, monkeypatch: Any
) -> None:
    for name in ("avx512_bf16", "amx_tile"):
        monkeypatch.setattr(torch.cpu, f"_is_{name}_supported", lambda: there)
    folder = write_checkpoint(tmp_path / "m", tiny_config(kind), dtype=torch.bfloat16)
    computed = torch.bfloat16 if there else torch.float32
    assert load_pipeline(folder, runtime=runtime).inner_model.dtype == computed
    for dtype in ("bfloat16", "float32"):
        assert load_pipeline(folder, dtype=dtype, runtime=runtime).inner_model.dtype == getattr(torch, dtype)


def test_pickles_are_refused(tmp_path: Path, write_checkpoint: Any, tiny_config: Any) -> None:
    folder = write_checkpoint(tmp_path / "m", tiny_config("chronos-t5"))
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="pickled"):
        load_pipeline(folder)


def test_text_models_forecast_no_series(tmp_path: Path, write_checkpoint: Any, tiny_config: Any) -> None:
    with pytest.raises(FamilyError, match="cannot forecast with"):
        load_pipeline(write_checkpoint(tmp_path / "text", tiny_config("t5")))


def test_what_chronos_refuses_is_one_line(tmp_path: Path, write_checkpoint: Any, tiny_config: Any) -> None:
    config = tiny_config("chronos-t5")
    config["chronos_config"]["pad_token_id"] = 5
    with pytest.raises(CheckpointError, match="chronos-forecasting cannot load it") as caught:
        load_pipeline(write_checkpoint(tmp_path / "m", config))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "gpu"}, "device 'gpu' is not known"),
        ({"device": "cuda:x"}, "device 'cuda:x' is not known"),
        ({"device": "cuda:99"}, "does not see"),
        ({"dtype": "int8"}, "dtype 'int8' is not known"),
    ],
)
def test_bad_options(options: dict[str, str], message: str, chronos_t5_folder: Path) -> None:
    with pytest.raises(OptionError, match=message):
        load_pipeline(chronos_t5_folder, **options)


def test_no_such_model() -> None:
    with pytest.raises(CheckpointError, match="no model"):
        load_pipeline("no-such-model")


@pytest.mark.parametrize(("runtime", "loaded"), [("auto", "ChronosPipeline"), ("fast", "FastChronosPipeline")])
def test_auto_is_stock_on_a_gpu(
    runtime: str, loaded: str, chronos_t5_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = BaseChronosPipeline.from_pretrained
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(BaseChronosPipeline, "from_pretrained", lambda folder, device_map, dtype: load(folder))
    assert type(load_pipeline(chronos_t5_folder, device="cuda", runtime=runtime)).__name__ == loaded
    assert type(load_pipeline(chronos_t5_folder, runtime=runtime)).__name__ == "FastChronosPipeline"


@pytest.mark.parametrize("kind", ["chronos-t5", "chronos-bolt"])
def test_a_fast_pipeline_stays_itself(kind: str, tmp_path: Path, write_checkpoint: Any, tiny_config: Any) -> None:
    pipeline = load_pipeline(write_checkpoint(tmp_path / "m", tiny_config(kind)), runtime="fast")
    assert make_fast(pipeline) is pipeline


@pytest.mark.parametrize("kind", ["chronos-t5", "chronos-bolt"])
@pytest.mark.parametrize("again", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_of_fast_pipelines_forecast_the_same(
    kind: str, again: Any, tmp_path: Path, write_checkpoint: Any, tiny_config: Any
) -> None:
    pipeline = load_pipeline(write_checkpoint(tmp_path / "m", tiny_config(kind)), runtime="fast")
    series, found = torch.arange(40.0), []
    for one in (pipeline, again(pipeline)):
        torch.manual_seed(0)
        found.append(one.predict(series, prediction_length=3))
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)
