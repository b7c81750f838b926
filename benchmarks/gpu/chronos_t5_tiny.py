"""Item 1: Chronos-T5 at the tiny shape, trained on one GPU in at most 25 minutes; to be bundled."""

from __future__ import annotations

from training import record, run

from rankscope.pretrain import ModelShape, PretrainConfig
from rankscope.pretrain.data.mixture import Mixture

CONFIG = PretrainConfig(
    family="chronos-t5",
    model=ModelShape(d_model=256, d_kv=64, d_ff=1024, num_heads=4, n_tokens=4096, start="recency"),
    context=512,
    horizon=64,
    mixture=Mixture(seasonal_share=0.25, curriculum=3000),
    bank_kernels=3000,
    max_steps=20_000,
    batch_size=256,
    learning_rate=1e-3,
    beta2=0.98,
    warmup_steps=500,
    schedule="warmup_stable_decay",
    decay_steps=4000,
    compile=True,
)

if __name__ == "__main__":
    record("chronos_t5_tiny", [run(CONFIG, "chronos-t5-tiny")])
