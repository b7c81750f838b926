"""Models that a run keeps on the way."""

import contextlib
import dataclasses

from safetensors.torch import load_file

from rankscope.checkpoints import open_checkpoint
from rankscope.train import pretrain


def test_kept_models_are_checkpoints_of_their_steps_and_survive_a_resumed_run(tiny, tmp_path):
    config = tiny(keep_steps=(0, 2, 6), max_steps=6, save_steps=3)
    pretrain(config, tmp_path / "out", device="cpu")
    kept = tmp_path / "out" / "kept"
    assert sorted(path.name for path in kept.iterdir()) == ["step-0", "step-2", "step-6"]
    start, last = (load_file(kept / f"step-{step}" / "model.safetensors") for step in (0, 6))
    final = load_file(tmp_path / "out" / "model.safetensors")
    assert all((last[name] == final[name]).all() for name in final)
    assert any((start[name] != final[name]).any() for name in final)
    assert open_checkpoint(str(kept / "step-2")).family.name == config.family


def test_a_run_may_go_on_keeping_other_steps(tiny, tmp_path):
    config = tiny(keep_steps=(1,), max_steps=6, save_steps=3, schedule="constant", warmup_steps=0)
    stopped = dataclasses.replace(config, max_steps=4)
    calls = []

    def stop(done, total, text):
        calls.append(done)
        if done >= 4:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        pretrain(stopped, tmp_path / "out", device="cpu", progress=stop)
    assert (tmp_path / "out.run" / "kept" / "step-1" / "config.json").exists()
    pretrain(dataclasses.replace(config, keep_steps=(5,)), tmp_path / "out", device="cpu", resume=True)
    kept = tmp_path / "out" / "kept"
    assert sorted(path.name for path in kept.iterdir()) == ["step-1", "step-5"]
