"""Times and memory: the runtime, streams, measuring, int8 layers."""

from __future__ import annotations

from runtime import joined
from runtime import table as timed

from claims import intervals
from claims.records import DEV, DRAWN, Block, Claim, Document, Prose, Result, table

PAGE = "docs/benchmarks.md"
STOCK = "t5-tiny:stock:float32"
LAB = "benchmarks/results/lab"
RESULTS: tuple[Result, ...] = (
    Result("spectrum", "benchmarks/spectrum.py --rounds 3", minutes=5, timed=True),
    Result("spectrum-intel", "benchmarks/spectrum.py", minutes=5, older=True),
    Result("runtime-tiny", "benchmarks/runtime.py --sizes tiny --rounds 3", minutes=8, timed=True),
    Result("runtime-slow", "benchmarks/runtime.py --slow --sizes tiny --batches 1,8 --rounds 3", minutes=6, timed=True),
    Result("runtime-mini-small", "benchmarks/runtime.py --sizes mini,small --rounds 3", minutes=40, older=True),
    Result("parts", "benchmarks/parts.py", minutes=1, timed=True),
    Result("parts-zen5", "benchmarks/parts.py", minutes=1, timed=True, older=True),
    Result("half-precision", "benchmarks/half_precision.py", minutes=2, timed=True, older=True),
    Result("peers", f"benchmarks/peers.py {DEV} --rounds 5", 7, timed=True, path=f"{DRAWN}/peers.json"),
    Result("growth", "benchmarks/growth.py", minutes=10, timed=True),
    Result("stream", "benchmarks/stream.py --series 120000 --rounds 3", minutes=6, timed=True),
    Result("storage", "benchmarks/storage.py --rounds 5", minutes=3, timed=True),
    Result("compress", "benchmarks/compress.py", minutes=6, timed=True),
    Result("evaluation", "benchmarks/evaluation.py --rounds 3", minutes=3, timed=True),
    Result("rounding", "benchmarks/rounding.py --models bundled-bolt --rounds 15", minutes=6, timed=True),
    Result("shards", "benchmarks/shards.py --n 4096 --batches 500", minutes=5, timed=True),
    Result("lab-encoders", "benchmarks/encoders.py --rounds 3", 10, timed=True, path=f"{LAB}/encoders-2026-11-22.json"),
    Result("lab-slt", "benchmarks/slt.py --precisions float32", 10, timed=True, path=f"{LAB}/slt-2026-11-22.json"),
)
MICROARCHITECTURES = {("25", "17"): "Zen 4", ("26", "2"): "Zen 5"}
"""AMD server processors by family and model, as /proc/cpuinfo has them."""


def microarchitecture(found: Document) -> str:
    """Of an AMD processor, where it is known."""
    return MICROARCHITECTURES.get(tuple(found["machine"].get(one, "") for one in ("family", "model")), "")


def machine(found: Document) -> str:
    """Processor, date and commit of a result, for a row."""
    kind = microarchitecture(found)
    name = found["machine"]["cpu"].replace("(R)", "").replace(" Processor", "") + (f" ({kind})" if kind else "")
    return f"{name}, {found['date']}, {found['commit'][:7]}"


def span(values: dict[str, float], digits: int = 2) -> str:
    """Median with range."""
    return f"{values['median']:.{digits}f} ({values['min']:.{digits}f}–{values['max']:.{digits}f})"


SPECTRUM = {
    "spectrum": "`rankscope spectrum`",
    "svdvals": "bare `torch.linalg.svdvals`, one after the other",
    "svdvals-parallel": "the same, one per core",
    "weightwatcher": "WeightWatcher {version} `analyze()`",
    "weightwatcher-no-fits": "the same without power-law fits",
}
"""Cases of the benchmark, in the order of the table's rows."""


def spectrum(found: Document, older: Document) -> str:
    """Time of all singular values by case: on this machine with ratios, then as an earlier commit had them."""
    lines = [
        "| | runs | seconds, median (min–max) | over `spectrum` | MB above the imports |",
        "|---|---|---|---|---|",
        f"| **{machine(found)}** | | | | |",
    ]
    for case, name in SPECTRUM.items():
        row, ratio = found["cases"][case], found["ratios"].get(f"{case}_over_spectrum")
        over = "1" if ratio is None else span(ratio)
        version = row.get("version", "")
        lines.append(
            f"| {name.format(version=version)} | {row['runs']} | {span(row['seconds'], 1)} "
            f"| {over} | {row['peak_mb']:.0f} |"
        )
    lines.append(f"| **{machine(older)}, older** | | | | |")
    base = older["cases"]["spectrum"]["seconds"]["median"]
    for case, name in SPECTRUM.items():
        if case in older["cases"]:
            row = older["cases"][case]
            lines.append(
                f"| {name.format(version=row.get('version', ''))} | {row['runs']} | {span(row['seconds'], 1)} "
                f"| {row['seconds']['median'] / base:.2f} | – |"
            )
    return "\n".join(lines)


def runtime(*found: Document) -> str:
    """Times as fast as stock, and memory, by case and batch; the head says on which machine."""
    return timed(joined(*found)).replace("| |", f"| {machine(found[0])} |", 1)


def achieved(*found: Document) -> Document:
    """Share of the least possible time that the runtime reaches in float32, with one series and with 32.

    Also the rate of products that this least time goes by, of every result in GFLOP/s.
    """
    shares: dict[int, list[float]] = {1: [], 32: []}
    for size, one in ((size, one) for each in found for size, one in each["sizes"].items()):
        for row in one["rows"]:
            if row["label"] == f"t5-{size}:fast:float32" and row["batch"] in shares:
                shares[row["batch"]].append(row["achieved"])
    spans = {name: intervals.span(shares[n]) for name, n in (("one", 1), ("many", 32))}
    return {**spans, "rates": [product_rate(each) for each in found]}


def product_rate(found: Document) -> float:
    """Measured rate of float32 products of a result's first size, GFLOP/s."""
    rates = next(iter(found["sizes"].values()))["rates"]
    return next(float(one["flops_per_second"]) for one in rates if one["dtype"] == "float32") / 1e9


def memory_of_many(found: Document) -> Document:
    """Peak memory of 32 series of tiny, and of stock with as many and with one, in MB."""
    peaks = {(row["label"], row["batch"]): row["peak_bytes"] / 1e6 for row in found["sizes"]["tiny"]["rows"]}
    ours, stock, one = peaks["t5-tiny:fast:float32", 32], peaks[STOCK, 32], peaks[STOCK, 1]
    return {"ours": ours, "stock": stock, "one": one, "share": ours / stock, "times": ours / one}


def compiled(found: Document) -> dict[str, dict[str, float]]:
    """Time and peak memory of the compiled stock pipeline over the stock one, over the batches."""
    one, name = found["sizes"]["tiny"], "t5-tiny:compile:float32"
    peaks = {(row["label"], row["batch"]): row["peak_bytes"] for row in one["rows"]}
    ratios = {
        "time": [row["seconds"]["median"] for row in one["ratios"] if row["label"] == name],
        "memory": [peak / peaks[STOCK, batch] for (label, batch), peak in peaks.items() if label == name],
    }
    return {what: intervals.span(values) for what, values in ratios.items()}


def narrow_heads_save_time(*found: Document) -> bool:
    """Whether narrow heads are faster in the stock pipeline at every size and batch."""
    rows = [row for each in found for one in each["sizes"].values() for row in one["ratios"]]
    times = [row["seconds"]["median"] for row in rows if row["label"].endswith("head-width:stock:float32")]
    return max(times) < 1


def bolt_is_two_orders_faster(found: Document) -> bool:
    """Whether Chronos-T5 takes a hundred times as long as Chronos-Bolt in the stock pipeline."""
    rows = {row["label"]: row["milliseconds_per_series"] for row in found["rows"]}
    return bool(rows["bundled:stock:float32"] > 100 * rows["bundled-bolt:stock:float32"])


def peers(found: Document) -> str:
    """Trained models beside local ones."""
    common = found["common_context"]
    lines = [
        f"| | context | ms per series | at context {common} | times as fast as stock there | MB | WQL | MASE |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        same = row["common_context"]
        faster = {key: 1 / same["over_baseline"][other] for key, other in FLIPPED.items()}
        scores = " | ".join(f"{row[metric]:.3f}" for metric in ("WQL", "MASE"))
        lines.append(
            f"| {peer(row['label'])} | {row['context']} | {row['milliseconds_per_series']:.3g} "
            f"| {same['milliseconds_per_series']:.3g} | {span_of_ratio(faster)} "
            f"| {row['peak_bytes'] / 1e6:.0f} | {scores} |"
        )
    return "\n".join(lines)


def peer(label: str) -> str:
    """Name of a row: a model, and how it ran.

    >>> peer("bundled-bolt-ratio-0.15:fast:float32"), peer("auto-ets"), peer("bundled:stock:bfloat16")
    ('`bundled-bolt`, ratio 0.15, fast', 'auto-ets', '`bundled`, stock, bfloat16')
    """
    model, *ran = label.split(":")
    if not ran:
        return model
    stem = "bundled-bolt" if model.startswith("bundled-bolt") else "bundled"
    form = model.removeprefix(stem).removeprefix("-")
    forms = [f"joint at {form}" if form.startswith("0") else form.replace("-", " ")] if form else []
    return ", ".join([f"`{stem}`", *forms, *(one for one in ran if one != "float32")])


FLIPPED = {"median": "median", "min": "max", "max": "min"}


def span_of_ratio(values: dict[str, float]) -> str:
    """Median with range, three digits at most."""
    digits = 2 if values["median"] < 10 else 0
    return span(values, digits)


def stream(found: Document) -> str:
    """Rates of undisturbed, killed and resumed runs."""
    rates, memory = found["series_per_second"], found["memory"]
    rows = []
    for name, rate in rates.items():
        peak, early, late = (f"{memory[name][at]:.0f}" for at in ("peak_mb", "second_tenth_mb", "last_tenth_mb"))
        rows.append([name, span(rate, 0), peak, f"{early}, {late}"])
    return table(("run", "series a second, median (min–max)", "peak MB", "second and last tenth, MB"), rows)


def slt_speed(found: Document) -> str:
    """Seconds of an epoch and forecasts a second of every model, and both over PatchTST's in the same round."""
    lines = [
        "| functions | model | s/epoch of ETTh | training ratio | windows/s | forecast ratio |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        lines.append(
            f"| {'compiled' if row['compiled'] else 'torch'} | `{row['model']}` "
            f"| {row['seconds_per_epoch_extrapolated']['median']:,.1f} | {span(row['training_ratio'])} "
            f"| {row['windows_per_second']['median']:,.0f} | {span(row['inference_ratio'])} |"
        )
    return "\n".join(lines)


def encoders(found: Document) -> dict[str, float]:
    """Seconds of a run and epoch one by one and at best, and how many times as fast the others are."""
    rows = {row["way"]: row for row in found["rows"]}
    alone, best, stack = rows["one by one"], rows["2 processes, compiled"], rows["stack"]
    return {
        "times": best["times_faster"]["median"],
        "best": best["seconds_per_run_epoch"]["median"],
        "alone": alone["seconds_per_run_epoch"]["median"],
        "stack": stack["times_faster"]["median"],
    }


def layers(found: Document) -> str:
    """Microseconds of a linear layer, and of every other implementation over it."""
    ways = list(found["layers"][0]["seconds"])
    titles = {"float": "`nn.Linear`", "int8": "`Int8Linear`"}
    rows = []
    for row in found["layers"]:
        shape = "×".join(map(str, row["shape"]))
        times = row["seconds"]
        cells = [f"{1e6 * times['float']['median']:,.0f} µs", *(span(times[way]["over_float"]) for way in ways[1:])]
        rows.append([shape, str(row["tokens"]), *cells])
    return table(("layer", "tokens", *(titles.get(way, way) for way in ways)), rows)


def parts(found: Document) -> str:
    """Parts of the runtime beside stock code."""
    rows = []
    for row in found["product"]:
        rates = (f"{row['gflops'][side]:.0f} GFLOP/s" for side in ("stock", "runtime"))
        rows.append([f"product {row['d_in']}→{row['d_out']}, {row['dtype']}", *rates, span(row["ratio"])])
    for key, name in (("sampling", "a token per row"), ("attention", "attention to the context, bfloat16")):
        row = found[key]
        times = (f"{1000 * row[f'{side}_seconds']['median']:.2f} ms" for side in ("stock", "runtime"))
        rows.append([name, *times, span(row["ratio"])])
    return table(("part", "stock", "runtime", "stock / runtime"), rows)


def halves_pay_less(found: Document, zen5: Document) -> bool:
    """True if float32 products beat stock's by less than a half on a Zen 4, and by more than twice on a Zen 5."""
    here, there = (
        [row["ratio"]["median"] for row in one["product"] if row["dtype"] == "float32"] for one in (found, zen5)
    )
    kinds = (microarchitecture(found), microarchitecture(zen5))
    return kinds == ("Zen 4", "Zen 5") and max(here) < 1.5 and min(there) > 2


def forecasts(found: Document) -> Document:
    """Milliseconds of a forecast by model, floating point and int8."""
    return {
        row["model"].replace("-", "_"): {form: 1e3 * times["median"] for form, times in row["seconds"].items()}
        for row in found["forecasts"]
    }


def shards(found: Document) -> dict[str, float]:
    """Shards of Arrow against other stores: shares of the processor time, and series drawn in a second."""
    rows = {row["store"]: row for row in found["rows"]}
    whole = 32 * found["settings"]["batches"]  # series of all batches
    return {
        "write": 1 / rows["datasets"]["write_ratio"]["median"],
        "draw": 1 / rows["datasets"]["draw_ratio"]["median"],
        "rate": round(whole / rows["arrow shards"]["draw_seconds"]["median"], -3),
        "parquet": 1 / rows["parquet"]["draw_ratio"]["median"],
        "npy": 1 / rows["npy"]["draw_ratio"]["median"],
    }


CLAIMS: tuple[Claim, ...] = (
    Block(PAGE, "runtime-tiny", ("runtime-tiny", "runtime-slow"), runtime, moves=0.1),
    Block(PAGE, "runtime-mini-small", ("runtime-mini-small",), runtime, moves=0.1),
    Prose(
        PAGE,
        "evaluation",
        "`eval bundled-bolt` over {series:,} monthly series takes {seconds[whole][median]:.1f} s on two cores: "
        "{seconds[forecasts][median]:.1f} s for the forecasts, {seconds[imports][median]:.1f} s for the imports of "
        "torch and chronos-forecasting, {seconds[rest][median]:.1f} s for reading, scoring, intervals and slices",
        holds=lambda found: found["seconds"]["rest"]["median"] < found["seconds"]["forecasts"]["median"],
        moves=0.2,
    ),
    Prose(
        PAGE,
        "runtime-tiny",
        "32 series of tiny take the runtime {ours:,.0f} MB, {share:.2f} of stock's {stock:,.0f} MB, but {times:.1f} "
        "times the {one:,.0f} MB",
        memory_of_many,
        holds=lambda found: memory_of_many(found)["times"] > 1,
    ),
    Prose(
        PAGE,
        "runtime-tiny",
        "multiply matrices in float32 at {rates[0]:.0f} (first table) and {rates[1]:.0f} GFLOP/s (second). In float32 "
        "the runtime reaches a share of {one[least]:.2f} to {one[most]:.2f} of that with one series and "
        "{many[least]:.2f} to {many[most]:.2f} with 32",
        achieved,
        also=("runtime-mini-small",),
        moves=0.1,
    ),
    Block(PAGE, "peers", ("peers",), peers, moves=0.1),
    Block(PAGE, "stream", ("stream",), stream, moves=0.1),
    Block("docs/lab/slt.md", "lab-slt", ("lab-slt",), slt_speed, moves=0.1),
    Prose(
        "docs/lab/index.md",
        "lab-encoders",
        "{times:.1f} times as fast as one by one in torch, {best:.2f} s a run and epoch in place of {alone:.2f}; the "
        "stack of seeds is {stack:.2f} times as fast",
        encoders,
        holds=lambda found: encoders(found)["stack"] < 1 < encoders(found)["times"],
        moves=0.1,
    ),
    Prose(
        "docs/runtime.md",
        "parts",
        "the table is of a Zen 4, which takes such vectors in halves; on a Zen 5 the same products were more than "
        "twice as fast as MKL's",
        also=("parts-zen5",),
        holds=halves_pay_less,
    ),
    Prose(
        "docs/runtime.md",
        "runtime-slow",
        "T5 tiny takes {time[least]:.2f} to {time[most]:.2f} of the time and {memory[least]:.1f} to {memory[most]:.1f} "
        "times the memory",
        compiled,
        holds=lambda found: compiled(found)["time"]["least"] > 0.85,
        moves=0.1,
    ),
    Prose(
        "docs/howto/choosing.md",
        "runtime-slow",
        "Narrow heads save time in the stock pipeline, too",
        also=("runtime-mini-small",),
        holds=narrow_heads_save_time,
    ),
    *(
        Prose(page, "peers", "two orders of magnitude faster", holds=bolt_is_two_orders_faster)
        for page in ("docs/howto/choosing.md", "docs/howto/student.md")
    ),
    Block("docs/runtime.md", "parts", ("parts",), parts, moves=0.1),
    Prose(
        PAGE,
        "shards",
        "writing the same series takes {write:.2f} of the processor time and random reads {draw:.2f} of it: "
        "{rate:,.0f} series of up to 1,024 values per second and core. Random reads from one Parquet file held as an "
        "array, or from a memory-mapped dense `.npy` file, are another {parquet:.1f} and {npy:.1f} times as fast",
        shards,
        moves=0.1,
    ),
    Block("docs/storage.md", "layers", ("storage",), layers, moves=0.2),
    Prose(
        "docs/storage.md",
        "storage",
        "`bundled-bolt` {bundled_bolt[float]:.0f} ms and {bundled_bolt[int8]:.0f} ms, `bundled` {bundled[float]:,.0f} "
        "ms and {bundled[int8]:,.0f} ms",
        forecasts,
        moves=0.2,
    ),
    Block(PAGE, "spectrum", ("spectrum", "spectrum-intel"), spectrum),
    Prose(
        PAGE,
        "spectrum",
        "`spectrum` is {svdvals_over_spectrum[median]:.1f} times as fast as LAPACK's calls one after the other, "
        "because it takes a matrix per core, and {svdvals-parallel_over_spectrum[median]:.1f} times as fast as those "
        "calls one per core",
        lambda found: found["ratios"],
    ),
    Prose(
        "README.md",
        "spectrum",
        "checkpoint take {cases[spectrum][seconds][median]:.1f} s on two cores: "
        "{ratios[svdvals_over_spectrum][median]:.1f}× as fast as sequential `svdvals` calls, and "
        "{ratios[svdvals-parallel_over_spectrum][median]:.1f}× as fast as running those on both cores",
    ),
    Prose(
        "docs/benchmarks.md",
        "growth",
        "(exponent {series[median]:.2f} over the larger half), samples ({samples[median]:.2f}), horizon "
        "({horizon[median]:.2f}, {horizon[min]:.2f}–{horizon[max]:.2f}), layers ({layers[median]:.2f}) and, in the "
        "range measured, the context ({context[median]:.2f})",
        lambda found: {one["name"]: one["runtimes"]["fast"]["exponent"] for one in found["factors"]},
        moves=0.2,
    ),
)
