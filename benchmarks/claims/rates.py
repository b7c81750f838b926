"""Rates of the fast runtime over the sizes that were measured: README, choosing, the page of the runtime."""

from __future__ import annotations

from claims.intervals import span
from claims.records import Claim, Document, Prose

SIZES = ("runtime-tiny", "runtime-mini-small")
FAST, FAST_HALF = "t5-{}:fast:float32", "t5-{}:fast:bfloat16"
NARROW, NARROW_HALF = "t5-{}-head-width:fast:float32", "t5-{}-head-width:fast:bfloat16"
STOCK = "t5-{}:stock:float32"


def faster(*found: Document, cases: tuple[str, ...]) -> dict[str, float]:
    """How many times as fast as stock with as many series, over all sizes and batches."""
    sizes = {size: one for each in found for size, one in each["sizes"].items()}
    names = {case.format(size): size for size in sizes for case in cases}
    return span(
        [1 / row["seconds"]["median"] for one in sizes.values() for row in one["ratios"] if row["label"] in names]
    )


def memory(*found: Document) -> dict[str, dict[str, float]]:
    """Peak memory of the runtime in float32 over stock's with as many series, and of 32 over stock's with one."""
    same: dict[int, list[float]] = {}
    alone = []
    for size, one in ((size, one) for each in found for size, one in each["sizes"].items()):
        peaks = {(row["label"], row["batch"]): row["peak_bytes"] for row in one["rows"]}
        for (label, batch), peak in peaks.items():
            if label == FAST.format(size):
                same.setdefault(batch, []).append(peak / peaks[STOCK.format(size), batch])
                if batch == 32:
                    alone.append(peak / peaks[STOCK.format(size), 1])
    return {"alone": span(alone), **{f"with_{batch}": span(values) for batch, values in same.items()}}


def rates(*found: Document) -> dict[str, dict[str, float]]:
    """All rates of the pages."""
    return {
        "full": faster(*found, cases=(FAST,)),
        "half": faster(*found, cases=(FAST_HALF,)),
        "narrow": faster(*found, cases=(NARROW,)),
        "narrow_any": faster(*found, cases=(NARROW, NARROW_HALF)),
        **memory(*found),
    }


def _claim(page: str, words: str) -> Prose:
    return Prose(page, SIZES[0], words, rates, also=SIZES[1:], moves=0.1)


CLAIMS: tuple[Claim, ...] = (
    _claim("README.md", "run {full[least]:.1f} to {full[most]:.1f} times as fast as in the stock pipeline"),
    _claim(
        "docs/howto/choosing.md",
        "Chronos-T5 forecasts {full[least]:.1f} to {full[most]:.1f} times as fast at full rank, in float32; with heads "
        "at 0.15, {narrow[least]:.1f} to {narrow[most]:.1f} times",
    ),
    _claim(
        "docs/runtime.md",
        "the runtime is {full[least]:.1f} to {full[most]:.1f} times faster at full rank, {half[least]:.1f} to "
        "{half[most]:.1f} times in bfloat16, and {narrow_any[least]:.1f} to {narrow_any[most]:.1f} times with "
        "head widths",
    ),
    _claim(
        "docs/runtime.md",
        "peak memory above the imports is {with_1[least]:.2f} to {with_1[most]:.2f} of stock's with one series, "
        "{with_8[least]:.2f} to {with_8[most]:.2f} with eight, and {with_32[least]:.2f} to {with_32[most]:.2f} with 32",
    ),
    _claim(
        "docs/runtime.md", "with 32 series the runtime's peak is {alone[least]:.1f} to {alone[most]:.1f} times stock's"
    ),
    Prose(
        "docs/runtime.md",
        "half-precision",
        "they take {bundled[ratio][median]:.1f} (`bundled`), {bundled-bolt[ratio][median]:.1f} (`bundled-bolt`) and "
        "{bundled-2[ratio][median]:.1f} (`bundled-2`) times as long as in float32",
        lambda found: found["models"],
        holds=lambda found: found["chosen"] == "float32" and "avx512_bf16" not in found["machine"]["units"],
        moves=0.2,
    ),
)
