"""Experiments on what surrounds attention: input encoders, kinds of layers, tokenizers, and the ranks that they set.

`blocks`, `data`, `kernels` and `measure` are shared; `encoders`, `slt` and `tokenizers` are one study each; `ranks`
asks what their models have in common.
"""
