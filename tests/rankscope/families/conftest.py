"""Small random models of transformers' own classes: enough to compare names, shapes and inputs with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.measure.hooks import LayerKey, Rows, run_corpus, watch

_TEXT = {"hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 24, "vocab_size": 40}
_LAGGED = {
    "prediction_length": 8,
    "context_length": 16,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 20,
    "num_time_features": 1,
    "lags_sequence": [1, 2],
}
_TIMESFM = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "head_dim": 8,
    "patch_length": 8,
    "context_length": 64,
    "horizon_length": 16,
}
_PATCHES = {"d_model": 16, "context_length": 64, "patch_length": 8, "patch_stride": 8}
_VIT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
_TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "timesfm": ("TimesFmConfig", "TimesFmModelForPrediction", _TIMESFM),
    "timesfm-2.5": (
        "TimesFm2_5Config",
        "TimesFm2_5ModelForPrediction",
        {**_TIMESFM, "num_key_value_heads": 2, "output_quantile_len": 16},
    ),
    "patchtst": (
        "PatchTSTConfig",
        "PatchTSTForPrediction",
        {**_PATCHES, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 24, "num_input_channels": 2},
    ),
    "patchtsmixer": (
        "PatchTSMixerConfig",
        "PatchTSMixerForPrediction",
        {**_PATCHES, "num_layers": 2, "num_input_channels": 1, "expansion_factor": 3},
    ),
    "patchtsmixer-attention": (
        "PatchTSMixerConfig",
        "PatchTSMixerForPrediction",
        {**_PATCHES, "num_layers": 1, "num_input_channels": 3, "self_attn": True, "self_attn_heads": 2}
        | {"mode": "mix_channel", "gated_attn": False},
    ),
    "informer": (
        "InformerConfig",
        "InformerForPrediction",
        {**_LAGGED, "num_static_categorical_features": 1, "cardinality": [5], "embedding_dimension": [3]},
    ),
    "autoformer": ("AutoformerConfig", "AutoformerForPrediction", _LAGGED),
    "bert": ("BertConfig", "BertModel", {**_TEXT, "num_attention_heads": 2}),
    "bert-head": ("BertConfig", "BertForMaskedLM", {**_TEXT, "num_attention_heads": 2, "max_position_embeddings": 32}),
    "roberta-head": (
        "RobertaConfig",
        "RobertaForMaskedLM",
        {**_TEXT, "num_attention_heads": 2, "max_position_embeddings": 34},
    ),
    "vit": ("ViTConfig", "ViTModel", {**_VIT, "image_size": 32, "patch_size": 8}),
    "vit-head": ("ViTConfig", "ViTForImageClassification", {**_VIT, "image_size": 32, "patch_size": 8}),
    "t5": (
        "T5Config",
        "T5ForConditionalGeneration",
        {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 2, "vocab_size": 40},
    ),
    "t5-gated": (
        "T5Config",
        "T5ForConditionalGeneration",
        {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 2, "vocab_size": 40}
        | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
    "llama": ("LlamaConfig", "LlamaForCausalLM", {**_TEXT, "num_attention_heads": 4, "num_key_value_heads": 2}),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 40, **_TOKENS}),
    "gpt-neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", {**_TEXT, "num_attention_heads": 2, **_TOKENS}),
    "bloom": ("BloomConfig", "BloomForCausalLM", {"hidden_size": 16, "n_layer": 2, "n_head": 2, "vocab_size": 40}),
    "phi3": (
        "Phi3Config",
        "Phi3ForCausalLM",
        {**_TEXT, "num_attention_heads": 4, "num_key_value_heads": 2, **_TOKENS},
    ),
    "falcon": (
        "FalconConfig",
        "FalconForCausalLM",
        {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 40, **_TOKENS},
    ),
    "bart": (
        "BartConfig",
        "BartForConditionalGeneration",
        {"d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "vocab_size": 40, "encoder_ffn_dim": 24}
        | {"decoder_ffn_dim": 20, "encoder_attention_heads": 2, "decoder_attention_heads": 4},
    ),
    "clip-vision": ("CLIPVisionConfig", "CLIPVisionModel", {**_VIT, "image_size": 32, "patch_size": 8}),
    "resnet": ("ResNetConfig", "ResNetModel", {"hidden_sizes": [8, 8], "depths": [1, 1], "embedding_size": 8}),
}


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``native("bert", hidden_size=32)``: a folder that transformers' save_pretrained wrote, the same for all tests."""
    made: dict[tuple[Any, ...], Path] = {}

    def write(kind: str, **changes: Any) -> Path:
        key = (kind, *sorted(changes.items()))
        if key not in made:
            import transformers

            config_class, model_class, settings = MODELS[kind]
            if not hasattr(transformers, model_class):
                pytest.skip(f"this transformers has no {model_class}")
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                config = getattr(transformers, config_class)(**{**settings, **changes})
                model = getattr(transformers, model_class)(config)
            made[key] = tmp_path_factory.mktemp(kind)
            model.save_pretrained(str(made[key]))
        return made[key]

    return write


@pytest.fixture(scope="session")
def native_checkpoint(native: Callable[..., Path]) -> Callable[..., Checkpoint]:
    """``native_checkpoint("bert")``: the same folder, opened."""
    return lambda kind, **changes: open_checkpoint(native(kind, **changes))


@pytest.fixture(scope="session")
def layer_inputs() -> Callable[[Checkpoint, Tensor], dict[LayerKey, Tensor]]:
    """``layer_inputs(checkpoint, corpus)``: what enters every layer of its family's blocks, by (stack, layer)."""

    def run(checkpoint: Checkpoint, corpus: Tensor) -> dict[LayerKey, Tensor]:
        module, family = checkpoint.module(), checkpoint.family
        layers = {
            (stack, layer): block
            for stack, blocks in family.blocks(module).items()
            for layer, block in enumerate(blocks)
        }
        with watch(layers, Rows) as rows:
            run_corpus(module, family.model_inputs, corpus)
        return {key: seen.matrix for key, seen in rows.items()}

    return run
