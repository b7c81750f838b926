"""Verbs that write, on inputs that take a second or less."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz.evaluation import fev_tasks, gift_sets
from tests.fuzz.kinds import write_chronos

SUITE = """
- {name: short, benchmark: small, embedded: co2, freq: W-SAT, offset: -52, prediction_length: 8, num_rolls: 1,
   season_length: 4, num_series: 1}
- {name: years, benchmark: small, embedded: nile, freq: Y, offset: -16, prediction_length: 8, num_rolls: 1,
   season_length: 1, num_series: 1}
"""
TRAINING = {
    "family": "chronos-bolt",
    "model": {
        "d_model": 16, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 2, "patch_size": 8,
    },
    "context": 32, "horizon": 8, "bank_kernels": 2, "bank_draws": 3, "batch_size": 4, "max_steps": 4,
    "warmup_steps": 1, "save_steps": 2, "log_steps": 1, "precision": "fp32",
}  # fmt: skip


@dataclass(frozen=True)
class Verb:
    """One command that writes.

    Attributes:
        words: the command, in a folder where the inputs are at ``../inputs``.
        again: words that let the same command go on, or start anew where it is not resumed.
        earlier: command that makes what ``words`` replace; none where nothing is replaced.
        kept: patterns of what an error may leave, for ``again`` to go on with.
        history: patterns of files that tell what happened, or when; they are not compared.
        fails: exit code where it cannot write.
        main: module whose ``main`` runs the words.
    """

    words: str
    again: str = ""
    earlier: str = ""
    kept: tuple[str, ...] = ()
    history: tuple[str, ...] = ()
    fails: int = 2
    main: str = "rankscope_cli.main"

    @property
    def targets(self) -> tuple[str, ...]:
        """Files and folders that the words say to write."""
        return tuple(re.findall(r"--(?:out|figures) (\S+)", self.words))


BROKEN = "broken"
"""Verb that the search itself is tried on."""
IN = "../inputs"
SMALL = f"{IN}/suite.yaml --max-series 1"
GIFT = f"eval naive --suite gift-eval --data {IN}/gift"
VERBS: dict[str, Verb] = {
    "spectrum": Verb(
        f"spectrum {IN}/bolt --eps 0.1 --out ranks.csv --figures figures --force", kept=("ranks.csv", "figures")
    ),
    "spectrum-json": Verb(
        f"spectrum {IN}/bolt --eps 0.1 --out ranks.json --force", earlier=f"spectrum {IN}/t5 --out ranks.json"
    ),
    "compress": Verb(
        f"compress {IN}/bolt --method svd --attention-ratio 0.5 --out small --force",
        earlier=f"compress {IN}/bolt --method svd --attention-ratio 0.25 --out small",
    ),
    "compress-joint": Verb(
        f"compress {IN}/bolt --method joint --attention-ratio 0.5 --calibration mixture:4 "
        "--probe mixture:4 --no-refine --out small --force",
    ),
    "compress-stream": Verb(
        f"compress {IN}/bolt --method joint+stream --ratio 0.7 --calibration mixture:4 --probe mixture:4 --no-refine "
        "--out small --force",
    ),
    "compress-layers": Verb(
        f"compress {IN}/bolt --layers 1 --sites encoder --calibration mixture:4 --probe mixture:4 --no-refine "
        "--out small --force",
    ),
    "compress-int8": Verb(
        f"compress {IN}/bolt --method svd --attention-ratio 0.5 --storage int8 --out small --force",
        earlier=f"compress {IN}/bolt --method svd --attention-ratio 0.5 --out small",
    ),
    "calibrate": Verb(
        f"calibrate {IN}/bolt --calibration mixture:8 --out moments.safetensors",
        again="--resume",
        kept=("moments.safetensors*", ".moments*"),
    ),
    "eval": Verb(
        f"eval {IN}/bolt --suite {SMALL} --out scores.csv", again="--resume", kept=("scores.csv*", ".scores.csv*")
    ),
    "eval-own": Verb(
        f"eval naive --input {IN}/series.csv --horizon 2 --windows 2 --out scores.csv",
        again="--resume",
        kept=("scores.csv*", ".scores.csv*"),
    ),
    "eval-fev": Verb(
        f"eval naive --suite fev:{IN}/tasks.yaml --out scores.csv",
        again="--resume",
        kept=("scores.csv*", ".scores.csv*"),
    ),
    "eval-gift": Verb(f"{GIFT} --out made", again="--resume", kept=(".made.rows",)),
    "eval-gift-force": Verb(
        f"{GIFT} --out made --force",
        earlier=f"{GIFT} --baseline naive --out made",
        kept=(".made.rows",),
    ),
    "forecast": Verb(
        f"forecast {IN}/bolt --input {IN}/series.csv --horizon 2 --out made.csv --force",
        earlier=f"forecast {IN}/bolt --input {IN}/series.csv --horizon 3 --out made.csv",
    ),
    "forecast-parts": Verb(
        f"forecast {IN}/bolt --input {IN}/series.csv --horizon 2 --out made --format parquet --chunk 2",
        again="--resume",
        kept=("made*",),
    ),
    "synth": Verb(
        "synth --kind kernelsynth --n 12 --length 24 --shard-size 4 --workers 1 --out drawn",
        again="--resume",
        kept=("drawn.partial",),
    ),
    "synth-force": Verb(
        "synth --kind kernelsynth --n 12 --length 24 --shard-size 4 --workers 1 --out drawn --force",
        earlier="synth --kind kernelsynth --n 8 --length 16 --shard-size 4 --workers 1 --out drawn",
        kept=("drawn.partial",),
    ),
    "pretrain": Verb(f"pretrain {IN}/train.yaml --out trained", again="--resume", kept=("trained.run",)),
    "pretrain-force": Verb(
        f"pretrain {IN}/train.yaml --out trained --force",
        earlier=f"pretrain {IN}/train.yaml --seed 1 --out trained",
        kept=("trained.run",),
    ),
    "heal": Verb(
        f"heal {IN}/small --teacher {IN}/bolt --steps 4 --batch-size 2 --out healed",
        again="--resume",
        kept=("healed.run",),
    ),
    "heal-in-place": Verb(
        f"heal small --teacher {IN}/bolt --steps 4 --batch-size 2 --out small --force",
        earlier=f"compress {IN}/bolt --method svd --attention-ratio 0.5 --out small",
        kept=("small.run",),
    ),
    "sweep": Verb(
        f"sweep {IN}/sweep.yaml --out widths",
        kept=("widths",),
        history=("widths/sweep.*", "widths/rows/[!.]*", "widths/beats/[!.]*"),
        fails=1,
    ),
    "table2": Verb(
        f"table2 {IN}/bolt --suite {SMALL} --ratios 0.5 --methods svd,joint --calibration mixture:4 --seeds 0 "
        "--overlap-series 8 --out compared",
        again="--resume",
        kept=("compared",),
    ),
    "report": Verb(f"report {IN}/small --out page.html --force"),
    "report-force": Verb(
        f"report {IN}/small --out page.html --force", earlier=f"report {IN}/small --title Earlier --out page.html"
    ),
    "flow": Verb(
        f"flow {IN}/bolt --n 4 --length 32 --out flows.csv --figures drawn --force", kept=("flows.csv", "drawn")
    ),
    "families": Verb("families --out known.csv --force", earlier="families --out known.csv"),
    "theory": Verb("theory thm2 --instances 4 --out checked.json --force"),
    "bench": Verb("bench naive --batch 1 --horizon 2 --context 8 --rounds 1 --out timed.json --force"),
    "figures": Verb(f"figures 2a --model {IN}/bolt --quick --out drawn --force", kept=("drawn",)),
    "embed": Verb(f"embed {IN}/bolt --out embedded.csv --force"),
    "embed-figures": Verb(
        f"embed {IN}/bolt --out embedded.csv --figures drawn --force", kept=("embedded.csv", "drawn")
    ),
    "design": Verb(f"design {IN}/bolt --r0 2 --alpha 0.1 --out designed"),
    "design-force": Verb(
        f"design {IN}/bolt --r0 2 --alpha 0.1 --out designed --force",
        earlier=f"design {IN}/bolt --r0 1 --alpha 0.1 --out designed",
    ),
    BROKEN: Verb("made.txt", earlier="made.txt", main="tests.faults.broken"),
    "standin": Verb("standin timesfm --steps 2 --width 16 --layers 1 --batch-size 2 --out small"),
}
UNTRIED = {
    "lab encoders": "trains for minutes",
    "lab slt": "trains for minutes",
    "lab tokenizers": "trains for minutes",
    "lab ranks": "reads runs of the verbs above; its one file is written as that of spectrum",
}
"""Verbs with ``--out`` that are not tried, and why."""


def inputs(folder: Path, run: Callable[[str, Path], None]) -> None:
    """Write what the verbs read; ``run`` runs a command in a folder."""
    import numpy as np

    folder.mkdir()
    write_chronos(folder / "bolt", "chronos-bolt")
    write_chronos(folder / "t5", "chronos-t5")
    (folder / "suite.yaml").write_text(SUITE)
    (folder / "train.yaml").write_text(json.dumps(TRAINING))
    base = {**TRAINING, "max_steps": 2}  # one snapshot of each point
    sweep = {"about": "two widths", "base": base, "axes": {"model.d_ff": [16, 32]}}
    (folder / "sweep.yaml").write_text(json.dumps(sweep))
    rng = np.random.default_rng(0)
    rows = [f"{item},2024-{month:02d}-01,{rng.normal():.3f}" for item in "abcdef" for month in range(1, 13)]
    (folder / "series.csv").write_text("item_id,timestamp,target\n" + "\n".join(rows) + "\n")
    (folder / "made").mkdir()
    fev_tasks(folder / "made")
    for file in (folder / "made" / "long-parquet").iterdir():
        file.rename(folder / file.name)
    if find_spec("datasets"):
        gift_sets(folder / "made")
        (folder / "made" / "us_births-M").rename(folder / "gift")
    run("compress bolt --method svd --attention-ratio 0.5 --out small", folder)
    run("eval small --baseline bolt --suite suite.yaml --out small/scores.json", folder)


def named(pattern: str) -> list[str]:
    """Verbs of a comma-separated list, all but the broken one by default."""
    return pattern.split(",") if pattern else [name for name in VERBS if name != BROKEN]
