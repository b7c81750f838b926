"""Small models of every family, trained on the CPU in minutes: ranks are only worth measuring on trained weights."""

from __future__ import annotations

from rankscope.train.proxies import images, series, text, tokenised
from rankscope.train.proxies.record import Recipe, StandIn, StandInOptions
from rankscope.train.proxies.train import StandInReport, train_standin

__all__ = ["STANDINS", "Recipe", "StandIn", "StandInOptions", "StandInReport", "train_standin"]

STANDINS: dict[str, StandIn] = {
    standin.family: standin
    for standin in (
        StandIn("t5", "T5 v1.0 for text", "google-t5/t5-small", text.t5, 1500, 16, 2e-3, reads_text=True),
        StandIn("bert", "BERT", "google-bert/bert-base-uncased", text.bert, 1500, 16, 1e-3, reads_text=True),
        StandIn("time-moe", "Time-MoE with dense MLPs", "Maple728/TimeMoE-50M", tokenised.time_moe, 600, 16, 2e-3),
        StandIn("wavetoken", "WaveToken over a T5", "the paper's settings", tokenised.wavetoken, 1500, 16, 2e-3),
        StandIn("timesfm", "TimesFM", "google/timesfm-2.0-500m-pytorch", series.timesfm, 1500, 32, 1e-3),
        StandIn(
            "timesfm-2.5", "TimesFM 2.5", "google/timesfm-2.5-200m-transformers", series.timesfm2_5, 1000, 32, 1e-3
        ),
        StandIn("patchtst", "PatchTST", "ibm-granite/granite-timeseries-patchtst", series.patchtst, 600, 32, 1e-3),
        StandIn(
            "patchtsmixer",
            "PatchTSMixer",
            "ibm-granite/granite-timeseries-patchtsmixer",
            series.patchtsmixer,
            600,
            32,
            1e-3,
        ),
        StandIn("informer", "Informer", "huggingface/informer-tourism-monthly", series.informer, 600, 32, 1e-3),
        StandIn(
            "autoformer", "Autoformer", "huggingface/autoformer-tourism-monthly", series.autoformer, 1200, 32, 1e-3
        ),
        StandIn("vit", "ViT", "google/vit-base-patch16-224", images.vit, 1200, 32, 1e-3),
        StandIn("totem", "TOTEM VQ-VAE", "the paper's settings", tokenised.totem, 1000, 32, 1e-3),
    )
}
"""How each family's stand-in is trained, by family."""
