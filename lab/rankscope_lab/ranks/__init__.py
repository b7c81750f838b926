"""Comparison of model ranks across encoders, layer types and tokenizers."""
