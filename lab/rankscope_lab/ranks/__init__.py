"""Ranks of the models that encoders, layers and tokenizers leave, compared."""
