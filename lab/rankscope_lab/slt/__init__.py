"""Sparse-layered transformers against attention everywhere."""
