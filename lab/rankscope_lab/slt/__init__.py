"""Sparse-layered transformers compared with full attention."""
