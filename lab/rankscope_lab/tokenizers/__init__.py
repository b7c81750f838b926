"""Tokenizer study: linear regression, autoencoders, vector-quantised tokenizers and a transformer."""
