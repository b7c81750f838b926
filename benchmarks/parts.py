"""Parts of the fast runtime against what stock code calls in their place, on random numbers in the shapes of T5 tiny.

- ``product``: weights of one layer times 160 rows (8 series × 20 sample paths), by torch's ``linear`` and as the
  runtime does it, float32 and bfloat16;
- ``sampling``: a token for each of 160 rows of 4,096 logits, top-k 50, by transformers' processor and torch's
  ``multinomial`` and by the runtime's sampler;
- ``attention``: 20 sample paths of 8 series attend to 513 tokens in bfloat16, by torch's fused kernel and by two
  products and a softmax.

Both sides of a pair take turns; a ratio is stock / runtime within a round.

    python benchmarks/parts.py --out benchmarks/results/parts.json    # a minute
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from provenance import conditions, origin, parser, save, spread
from torch import nn
from transformers.generation.logits_process import TopKLogitsWarper

from rankscope.forecast.attention import attend_all
from rankscope.forecast.products import Product, has_onednn
from rankscope.forecast.sampling import Sampler
from rankscope_eval.bench.turns import alternate

USED = ("src/rankscope/forecast",)
SERIES, PATHS, D_MODEL, D_FF, HEADS, D_KV, VOCABULARY, TOKENS, TOP_K = 8, 20, 256, 1024, 4, 64, 4096, 513, 50
ROWS = SERIES * PATHS
SHAPES = ((D_MODEL, 3 * HEADS * D_KV), (D_MODEL, D_FF), (D_FF, D_MODEL), (D_MODEL, VOCABULARY))
"""(d_in, d_out): queries, keys and values; feed-forward, in and out; head."""
TURN = 0.1
"""Minimum seconds per turn."""


def turn(work: Callable[[], object]) -> Callable[[], float]:
    """Warm up, and return a turn: mean seconds over as many calls as fill `TURN`."""

    def mean(calls: int) -> float:
        begun = time.perf_counter()
        for _ in range(calls):
            work()
        return (time.perf_counter() - begun) / calls

    mean(3)
    calls = max(1, round(TURN / mean(3)))
    return lambda: mean(calls)


def pair(stock: Callable[[], object], runtime: Callable[[], object], rounds: int) -> dict[str, Any]:
    """Seconds of both, and stock / runtime by round."""
    taken = alternate({"stock": turn(stock), "runtime": turn(runtime)}, rounds)
    ratios = [one / other for one, other in zip(taken["stock"], taken["runtime"], strict=True)]
    return {**{f"{name}_seconds": spread(several) for name, several in taken.items()}, "ratio": spread(ratios)}


def products(rounds: int) -> list[dict[str, Any]]:
    """Time products of every shape and number format."""
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        for d_in, d_out in SHAPES:
            layer = nn.Linear(d_in, d_out, bias=False, dtype=dtype)
            x, weight = torch.randn(ROWS, d_in, dtype=dtype), layer.weight.detach().clone()
            product = Product([layer], repeated=True)
            found = pair(partial(nn.functional.linear, x, weight), partial(product, x), rounds)
            flops = 2 * ROWS * d_in * d_out / 1e9
            rates = {side: flops / found[f"{side}_seconds"]["median"] for side in ("stock", "runtime")}
            facts = {"dtype": str(dtype).removeprefix("torch."), "d_in": d_in, "d_out": d_out, "gflops": rates}
            rows.append({**facts, **found, "onednn": has_onednn(dtype)})
    return rows


def sampling(rounds: int) -> dict[str, Any]:
    """Time a draw."""
    logits, top, sampler = 3 * torch.randn(ROWS, VOCABULARY), TopKLogitsWarper(TOP_K), Sampler(top_k=TOP_K)
    ids = torch.zeros(ROWS, 1, dtype=torch.long)
    return pair(lambda: torch.multinomial(top(ids, logits).softmax(-1), 1), lambda: sampler(logits), rounds)


def attention(rounds: int) -> dict[str, Any]:
    """Time attention of sample paths to the context."""
    queries = torch.randn(SERIES, HEADS, PATHS, D_KV, dtype=torch.bfloat16)
    keys, values = (torch.randn(SERIES, HEADS, TOKENS, D_KV, dtype=torch.bfloat16) for _ in range(2))
    mask = torch.zeros(SERIES, 1, 1, TOKENS, dtype=torch.bfloat16)
    fused = nn.functional.scaled_dot_product_attention
    return pair(
        lambda: fused(queries, keys, values, attn_mask=mask, scale=1.0),
        lambda: attend_all(queries, keys, values, mask),
        rounds,
    )


def main() -> None:
    """Measure, print and save."""
    options = parser(__doc__, rounds=9).parse_args()
    before = conditions()
    with torch.inference_mode():
        parts: dict[str, Any] = {
            "product": products(options.rounds),
            "sampling": sampling(options.rounds),
            "attention": attention(options.rounds),
        }
    for row in parts["product"]:
        rates = row["gflops"]
        print(f"{row['dtype']} {row['d_in']}→{row['d_out']}: {rates['stock']:.0f} → {rates['runtime']:.0f} GFLOP/s")
    for name in ("sampling", "attention"):
        row = parts[name]
        times = [f"{1000 * row[f'{side}_seconds']['median']:.2f}" for side in ("stock", "runtime")]
        print(f"{name}: {' → '.join(times)} ms, ratio {row['ratio']}")
    threads = {"threads": torch.get_num_threads(), "rounds": options.rounds, "torch": torch.__version__}
    save(
        {**origin("parts", *USED), **threads, "conditions": {"before": before, "after": conditions()}, **parts},
        options.out,
    )


if __name__ == "__main__":
    main()
