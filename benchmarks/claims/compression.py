"""Cost of compression in scores, by method, size, allocation and number format: README and docs."""

from __future__ import annotations

from claims.intervals import interval
from claims.records import DEV, SIX, Block, Claim, Document, Prose, Result

ALLOCATIONS = ("uniform-ratio", "uniform-eps", "schedule", "energy", "sensitivity")

RESULTS: tuple[Result, ...] = (
    Result("storage-accuracy-bundled-bolt", f"benchmarks/accuracy.py storage bundled-bolt {DEV}", minutes=2),
    Result("storage-accuracy-bundled", "benchmarks/accuracy.py storage bundled --seeds 3", minutes=4),
    Result("allocation-bundled-bolt", f"benchmarks/accuracy.py allocation bundled-bolt {DEV}", minutes=10),
    Result("refine-bundled-bolt", f"benchmarks/accuracy.py refine bundled-bolt {DEV}", minutes=12),
    Result("together-bundled-bolt", f"benchmarks/accuracy.py together bundled-bolt {DEV}", minutes=13),
    Result("together-six-bundled-bolt", f"benchmarks/accuracy.py together bundled-bolt {SIX}", minutes=13),
    Result("together-six-bundled-2", f"benchmarks/accuracy.py together bundled-2 {SIX}", minutes=25),
    Result("together-six-bundled", f"benchmarks/accuracy.py together bundled {SIX} --max-series 16", minutes=15),
    Result("together-bundled", f"benchmarks/accuracy.py together bundled {DEV} --max-series 16", minutes=30),
    Result("together-bundled-2", f"benchmarks/accuracy.py together bundled-2 {DEV}", minutes=20),
    Result("depth-bundled-bolt", f"benchmarks/accuracy.py depth bundled-bolt {DEV}", minutes=5),
    *(Result(f"losses-{one}", f"benchmarks/losses.py {one}", minutes=3) for one in ("bundled", "bundled-bolt")),
)

FORMS = {"int8": "int8", "joint": "joint at 0.25", "joint-int8": "joint at 0.25, int8"}


def storage(*found: Document) -> str:
    """Bytes and relative scores of the forms of the bundled models."""
    lines = ["| model | data sets | | weights on disk | WQL | MASE |", "|---|---|---|---|---|---|"]
    for one in found:
        for at, (name, form) in enumerate(one["forms"].items()):
            sets = f"{form['datasets']} {'embedded' if one['suite'] == 'embedded' else 'development'}"
            head = f"| `{one['model']}` | {sets} |" if at == 0 else "| | |"
            if len(form["seeds"]) == 1:
                scores = [interval(form, metric) for metric in ("WQL", "MASE")]
            else:
                scores = [", ".join(f"{s['relative']['all'][m]:.3f}" for s in form["seeds"]) for m in ("WQL", "MASE")]
            lines.append(f"{head} {FORMS[name]} | {form['bytes']:.3f} | {scores[0]} | {scores[1]} |")
    return "\n".join(lines)


def allocations(found: Document) -> str:
    """WQL at 0.25 and 0.15 by method and allocation."""
    names = ALLOCATIONS
    lines = ["| | " + " | ".join(f"`{name}`" for name in names) + " |", "|---" * (len(names) + 1) + "|"]
    for method in ("joint", "whitened"):
        cells = [
            ", ".join(f"{found['forms'][f'{method}-{name}-{ratio}']['WQL']:.3f}" for ratio in (0.25, 0.15))
            for name in names
        ]
        lines.append(f"| `{method}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def refined(found: Document) -> str:
    """WQL and MASE with and without the refit, by size."""
    lines = [
        "| size | of all parameters | refitted | WQL | worst set | MASE | worst set |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, form in found["forms"].items():
        kind, size, on = name.split("-")
        scores = (f"{interval(form, one)} | {form['worst'][one][1]:.2f}" for one in ("WQL", "MASE"))
        words = (
            f"`--layers {size} --sites {kind}`"
            if kind in ("encoder", "decoder")
            else f"`--{kind.replace('_', '-')} {size}`",
            f"{form['parameters']:.3f}",
            "yes" if on == "True" else "no",
        )
        lines.append(f"| {' | '.join((*words, *scores))} |")
    return "\n".join(lines)


def three_are_alike(found: Document) -> bool:
    """True if with both methods the three allocations that the page names have the lowest WQL and overlap at 0.25."""
    for method in ("joint", "whitened"):
        scored = {one: [found["forms"][f"{method}-{one}-{ratio}"] for ratio in (0.25, 0.15)] for one in ALLOCATIONS}
        for at in (0, 1):
            best = [one for _, one in sorted((scored[one][at]["WQL"], one) for one in ALLOCATIONS)][:3]
            if set(best) != {"energy", "sensitivity", "uniform-eps"}:
                return False
        spans = [scored[one][0]["WQL_interval"] for one in ("energy", "sensitivity", "uniform-eps")]
        if max(low for low, _ in spans) > min(high for _, high in spans):
            return False
    return True


def together(found: Document) -> str:
    """WQL and MASE of `joint` alone and with a narrower stream, by share of all parameters."""
    lines = ["| of all parameters | method | WQL | worst set | MASE | worst set |", "|---" * 6 + "|"]
    for name, form in found["forms"].items():
        method, _, size = name.rpartition("-")
        if "out_of_reach" in form:
            lines.append(f"| {float(size):.3f} | `{method}` | out of reach | | | |")
            continue
        scores = (f"{interval(form, metric)} | {form['worst'][metric][1]:.2f}" for metric in ("WQL", "MASE"))
        lines.append(f"| {form['parameters']:.3f} | `{method}` | {' | '.join(scores)} |")
    return "\n".join(lines)


def grouped_losses(found: Document) -> bool:
    """True if `joint+stream` loses what the page says of a Chronos-2, by size, and less than `joint` alone."""
    forms = {name: [form[one] for one in ("WQL", "MASE")] for name, form in found["forms"].items()}
    ours, alone = (
        {size: forms[f"{how}-{size}"] for size in (0.3, 0.15, 0.1, 0.05)} for how in ("joint+stream", "joint")
    )
    return (
        all(max(ours[size]) < 1.095 and min(ours[size]) > 1.005 for size in (0.3, 0.15, 0.1))
        and min(ours[0.05]) > 1.095
        and all(now < then for size in ours for now, then in zip(ours[size], alone[size], strict=True))
    )


def lost(found: Document) -> Document:
    """Per cent of WQL that `joint+stream` costs at 0.3 (``large``) and 0.15 (``small``)."""
    sizes = {"large": 0.3, "small": 0.15}
    return {name: 100 * (found["forms"][f"joint+stream-{size}"]["WQL"] - 1) for name, size in sizes.items()}


_SIZES = {
    "together-six-bundled-bolt": ("Chronos-Bolt", "six public"),
    "together-bundled-bolt": ("Chronos-Bolt", "eleven development"),
    "together-six-bundled-2": ("Chronos-2", "six public"),
    "together-bundled-2": ("Chronos-2", "eleven development"),
    "together-six-bundled": ("Chronos-T5", "six public"),
    "together-bundled": ("Chronos-T5", "eleven development"),
}


def sizes(*found: Document) -> str:
    """Cost of `compress --ratio` at two sizes: one row a model, suite and size."""
    lines = ["| model | data sets | weights left | WQL | worst set | MASE | worst set |", "|---" * 7 + "|"]
    for (model, sets), one in zip(_SIZES.values(), found, strict=True):
        for at, size in enumerate((0.3, 0.15)):
            form = one["forms"][f"joint+stream-{size}"]
            scores = [f"{interval(form, metric)} | {form['worst'][metric][1]:.2f}" for metric in ("WQL", "MASE")]
            head = f"{model} | {sets} |" if at == 0 else "| |"
            lines.append(f"| {head} {100 * size:.0f} % | {' | '.join(scores)} |")
    return "\n".join(lines)


def losses(*found: Document) -> str:
    """Loss by ratio and allocation of both models."""
    lines = ["| | ratio | `energy` | `sensitivity` |", "|---|---|---|---|"]
    for one, name in zip(found, ("bundled-bolt, squared change", "bundled (T5), mean KL"), strict=True):
        for at, (ratio, row) in enumerate(one["losses"].items()):
            lines.append(f"| {'' if at else name} | {ratio} | {row['energy']:.2g} | {row['sensitivity']:.2g} |")
    return "\n".join(lines).replace("|  |", "| |")


def rounding(found: Document) -> Document:
    """Time and scores of ranks rounded to multiples over not, by method."""
    return {row["method"]: row for row in found["rows"] if row["model"] == "bundled-bolt"}


_WITH_INTERVALS = (
    "{WQL:.3f} ({WQL_interval[0]:.3f}–{WQL_interval[1]:.3f}) | "
    "{MASE:.3f} ({MASE_interval[0]:.3f}–{MASE_interval[1]:.3f}) |"
)


CLAIMS: tuple[Claim, ...] = (
    Block(
        "docs/storage.md",
        "storage-accuracy",
        ("storage-accuracy-bundled-bolt", "storage-accuracy-bundled"),
        storage,
    ),
    *(
        Prose(
            "docs/howto/choosing.md",
            "together-bundled-bolt",
            f"| `joint+stream` at {size} | {{parameters:.2f}} | {_WITH_INTERVALS}",
            lambda found, size=size: found["forms"][f"joint+stream-{size}"],
        )
        for size in (0.3, 0.15, 0.07)
    ),
    Prose(
        "docs/howto/choosing.md",
        "storage-accuracy-bundled-bolt",
        f"| int8 (of a bfloat16 checkpoint) | {{bytes:.2f}} | {_WITH_INTERVALS}",
        lambda found: found["forms"]["int8"],
    ),
    Prose(
        "docs/howto/int8.md",
        "storage-accuracy-bundled-bolt",
        "`bundled-bolt` with its attention cut by `--method joint --attention-ratio 0.25`, in int8, has "
        "{WQL:.3f} of its WQL",
        lambda found: found["forms"]["joint-int8"],
    ),
    *(Block("docs/theory/stream.md", one, (one,), together) for one in _SIZES),
    Prose(
        "docs/theory/stream.md",
        "together-bundled-2",
        "On the development sets, down to a tenth of its parameters it loses 1 to 9 % of both scores under one budget, "
        "less than by `joint` alone, and with a twentieth 10 % and more",
        holds=grouped_losses,
    ),
    Prose(
        "docs/theory/stream.md",
        "together-bundled",
        "WQL rises by {large:.1f} % at 30 % of the parameters and by {small:.0f} % at 15 %",
        lost,
    ),
    Block("README.md", "sizes", tuple(_SIZES), sizes),
    Prose(
        "README.md",
        "together-bundled-bolt",
        "With 30 % or 15 % of its parameters the bundled Chronos-Bolt keeps its mean scores within one per cent",
        holds=lambda *found: all(
            abs(one["forms"][f"joint+stream-{size}"][metric] - 1) < 0.01
            for one in found
            for size in (0.3, 0.15)
            for metric in ("WQL", "MASE")
        ),
        also=("together-six-bundled-bolt",),
    ),
    Block("docs/theory/compression.md", "refined", ("refine-bundled-bolt",), refined),
    Block("docs/theory/compression.md", "depth", ("depth-bundled-bolt",), refined),
    Block("docs/theory/compression.md", "allocations", ("allocation-bundled-bolt",), allocations),
    Prose(
        "docs/theory/compression.md",
        "allocation-bundled-bolt",
        "`energy`, `sensitivity` and `uniform-eps` have the lowest WQL with both methods, and no clear order",
        holds=three_are_alike,
    ),
    Block("docs/theory/compression.md", "losses", ("losses-bundled-bolt", "losses-bundled"), losses),
    Prose(
        "docs/theory/compression.md",
        "rounding",
        "rounded over not: time {joint[time_ratio][median]:.2f} ({joint[time_ratio][min]:.2f}–"
        "{joint[time_ratio][max]:.2f}) for `joint` and {whitened[time_ratio][median]:.2f} "
        "({whitened[time_ratio][min]:.2f}–{whitened[time_ratio][max]:.2f}) for `whitened`. It costs scores, since "
        "ranks are few here: WQL on the embedded suite {joint[relative_WQL_embedded][0]:.3f} → "
        "{joint[relative_WQL_embedded][1]:.3f} and {whitened[relative_WQL_embedded][0]:.3f} → "
        "{whitened[relative_WQL_embedded][1]:.3f}",
        rounding,
        holds=lambda found: all(
            0.88 < row["time_ratio"]["median"] < 1 < row["time_ratio"]["max"] for row in rounding(found).values()
        ),
    ),
    Prose(
        "docs/benchmarks.md",
        "compress",
        "in {seconds:.0f} s on two cores: calibration {phases[calibration]:.0f} s, sensitivity "
        "{phases[sensitivity]:.0f} s, factors and writing {phases[factors and writing]:.0f} s, refit "
        "{phases[refining]:.0f} s; peak resident memory {gigabytes:.1f} GB",
        lambda found: {**found, "gigabytes": found["peak_mb"] / 1000},
        moves=0.2,
    ),
)
