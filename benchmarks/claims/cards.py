"""Cards of the bundled models: what they quote of the record that training left beside them."""

from __future__ import annotations

import json

from claims.records import ROOT, Claim, Document, Prose, Result
from claims.scores import CARDS, STAGED

FOLDER = "src/rankscope/bundled"
STANDINS: dict[str, str] = {
    file.parent.name: json.loads(file.read_text(encoding="utf-8"))["family"]
    for file in sorted((ROOT / FOLDER).glob("*/standin.json"))
}
"""Small bundled models, with what `rankscope standin` calls their family."""
STAGES = {"plain": "second", "groups": "third"}
"""Later stages of the bundled Chronos-2 by the names of their configs and records, in words."""
MILESTONES = {"bundled": (100, 300, 1000, 4000)}
"""Steps of the loss that a card quotes, about; of the others `OTHERS`, and always the last."""
OTHERS = (100, 300, 1000, 2000)


def card(name: str) -> str:
    """Page of a model."""
    return f"{FOLDER}/{name}/README.md"


def kept(name: str, file: str, command: str) -> Result:
    """A file beside the weights, of the day on which they were trained."""
    stem, _, _ = file.partition(".")
    return Result(f"{stem}-{name}", command, minutes=60, older=True, path=f"{FOLDER}/{name}/{file}", by_hand=True)


RESULTS: tuple[Result, ...] = (
    *(kept(one, file, "python benchmarks/gpu/bundled.py") for one in CARDS for file in ("pretrain.json", "loss.csv")),
    *(
        kept(STAGED, f"{record}-{stage}.{kind}", f"rankscope pretrain {STAGED}-{stage} --from DIR --out OUT")
        for stage in STAGES
        for record, kind in (("pretrain", "json"), ("loss", "csv"))
    ),
    *(kept(one, "standin.json", f"rankscope standin {family} --out DIR") for one, family in STANDINS.items()),
)


def trained(record: Document, curve: Document) -> Document:
    """Record of a training with numbers that follow from it, and the loss at the nearest logged steps."""
    report, config = record["report"], record["config"]
    series = report["steps"] * config["batch_size"]
    steps = (*MILESTONES.get(report["folder"], OTHERS), report["steps"])
    return {
        **record,
        "series": series,
        "taken": series / 1e6,
        "rate": float(f"{series / report['seconds']:.3g}"),
        "vocabulary": config["learning_rate"] * config["embedding"].get("rate", 1.0),
        "millions": report["parameters"] / 1e6,
        "loss": [min(curve["rows"], key=lambda row: abs(row["step"] - step)) for step in steps],
    }


_PRETRAINED = (
    "| parameters | {report[parameters]:,} |",
    "| steps | {report[steps]:,} of {config[batch_size]} series ({series:,} series in all), seed {config[seed]} |",
    "{config[beta2]:g}), peak learning rate {config[learning_rate]:g}",
    "| machine | {report[seconds]:.0f} seconds of one NVIDIA H200 ({rate:,.0f} series/s)",
    "| training loss | "
    + ", ".join(f"{{loss[{at}][loss]:.3g}} at {{loss[{at}][step]:,.0f}}" for at in range(5))
    + " (",
)
_STAGE = (
    "| {stage} stage | {{report[steps]:,}} steps of {{config[batch_size]}} series ({{series:,}} in all), "
    "seed {{config[seed]}}; ",
    "| {stage} stage, loss | "
    + ", ".join(f"{{{{loss[{at}][loss]:.3g}}}} at {{{{loss[{at}][step]:,.0f}}}}" for at in range(5))
    + "; ",
)
_STANDIN = (
    "| parameters | {parameters:,} |",
    "| steps | {steps:,} of {batch_size} examples, seed {seed} |",
    "peak learning rate {learning_rate:g}, cosine",
    "no GPU, {seconds:.0f} s |",
    "| training loss | {loss_start:.4g} at the start, {loss_end:.4g} at the end (",
    "| held-out loss | {held_out_before:.4g} before training, {held_out_after:.4g} after |",
)
CLAIMS: tuple[Claim, ...] = (
    *(
        Prose(page, f"pretrain-{one}", words, trained, also=(f"loss-{one}",))
        for one in CARDS
        for page, words in (
            *((card(one), words) for words in _PRETRAINED),
            *([(card(one), "(vocabulary {vocabulary:g})")] if one == "bundled" else []),
            *([(card(one), "# bundled-2: Chronos-2 at {millions:.1f} million")] if one == "bundled-2" else []),
            *([("docs/benchmarks.md", "after {taken:.1f} million series")] if one == "bundled" else []),
        )
    ),
    *(
        Prose(card(STAGED), f"pretrain-{stage}-{STAGED}", words.format(stage=which), trained, also=(loss,))
        for stage, which in STAGES.items()
        for loss in (f"loss-{stage}-{STAGED}",)
        for words in _STAGE
    ),
    *(Prose(card(one), f"standin-{one}", words) for one in STANDINS for words in _STANDIN),
)
