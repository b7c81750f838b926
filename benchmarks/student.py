"""Student of a sampling teacher, with its controls: the same without a teacher, and the same size from scratch.

Every arm trains a Chronos-Bolt of the teacher's encoder shape and one decoder layer, for as many steps and with several
seeds; scores are relative to the teacher's, times are those of a forecast of a batch, both in the fast runtime. Every
student is saved as soon as it is scored, and runs stay in ``--folder``: the same command goes on where it was stopped.

    python benchmarks/student.py bundled --suite dev.yaml --data DIR --out benchmarks/results/student-bundled.json
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from accuracy import scored, sizes_of
from digests import SCORING, bundled
from provenance import conditions, earlier, origin, parser, save, spread, suite_options

CONFIG = Path(__file__).resolve().parents[1] / "src/rankscope/train/configs/student.yaml"
BATCH, CONTEXT, HORIZON = 32, 512, 64


def arms(taught: Any) -> dict[str, Any]:
    """Runs by name: with the teacher, with its encoder alone, and with nothing of it."""
    from rankscope.train.config import Teacher

    return {
        "teacher": taught,
        "encoder alone": replace(taught, teacher=replace(taught.teacher, truth=1.0)),
        "from scratch": replace(taught, teacher=Teacher()),
    }


def folder_of(arm: str, seed: int, folder: Path) -> Path:
    """Folder of a run."""
    return folder / f"{arm.replace(' ', '-')}-{seed}"


def forecasts(model: str | Path) -> Callable[[], Any]:
    """A forecast of a batch by the fast runtime."""
    import torch

    from rankscope import load_pipeline

    pipeline = load_pipeline(str(model), runtime="fast")
    series = torch.randn(BATCH, CONTEXT, generator=torch.Generator().manual_seed(0)).cumsum(1)
    return lambda: pipeline.predict_quantiles(series, prediction_length=HORIZON)


def main() -> None:
    """Train all arms, score and time them, save."""
    words = parser(__doc__, seeds=3, rounds=3)
    words.add_argument("model", help="the teacher, a bundled one")
    words.add_argument("--steps", type=int, default=16_000)
    words.add_argument("--series", type=int, default=2048, help="that the teacher answers")
    words.add_argument("--folder", type=Path, default=Path("runs/students"), help="of the runs; default: %(default)s")
    words.add_argument("--max-series", type=int, help="of every task")
    suite_options(words)
    options = words.parse_args()

    from rankscope import open_checkpoint
    from rankscope.train import learn_from, pretrain, read_config
    from rankscope_eval.bench.turns import alternate, timed

    before, teacher = conditions(), open_checkpoint(options.model)
    given = learn_from(read_config(CONFIG), options.model)
    decay = {"max_steps": options.steps, "warmup_steps": options.steps // 20, "decay_steps": options.steps // 4}
    given = replace(given, **decay, teacher=replace(given.teacher, series=options.series))
    facts = origin("student", "benchmarks/accuracy.py", "src/rankscope/train", *SCORING, *bundled(options.model))
    settings = {"model": options.model, "suite": Path(options.suite).name}
    settings |= {name: getattr(options, name) for name in ("steps", "series", "max_series", "seeds")}
    settings["teacher"] = {"parameters": teacher.parameters, "paths": given.teacher.paths}
    runs = list(earlier(options.out, {**facts, **settings}, *settings).get("runs", []))
    result = {**facts, "conditions": {"before": before}, **settings, "runs": runs}
    done = {(one["arm"], one["seed"]) for one in runs}
    wanted = [(seed, *arm) for seed in range(options.seeds) for arm in arms(given).items()]
    for seed, name, config in (one for one in wanted if (one[1], one[0]) not in done):
        out = folder_of(name, seed, options.folder)
        pretrain(replace(config, seed=seed), out, device="cpu", resume=True)
        form = {**sizes_of(out, teacher), **scored(out, 0, options, options.folder / "rows")}
        runs.append({"arm": name, "seed": seed, **form})
        whole = form["relative"]["all"]
        print(f"{name:14} seed {seed}  WQL {whole['WQL']:.3f}  MASE {whole['MASE']:.3f}", flush=True)
        result["conditions"]["after"] = conditions()
        save(result | {"missing": len(wanted) - len(runs) + 1}, options.out)  # and the times
    student = folder_of("teacher", 0, options.folder)
    turns = {name: timed(forecasts(at)) for name, at in {"teacher": options.model, "student": student}.items()}
    times = alternate(turns, options.rounds)
    faster = [slow / fast for slow, fast in zip(times["teacher"], times["student"], strict=True)]
    result |= {"missing": 0, "times_as_fast": spread(faster)}
    result["conditions"]["after"] = conditions()
    print(f"the student forecasts {result['times_as_fast']['median']:.0f} times as fast")
    save(result, options.out)


if __name__ == "__main__":
    main()
