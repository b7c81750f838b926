"""Experiments of the companion papers: input encoders, layer types, tokenizers, and their effect on ranks.

`blocks`, `data`, `kernels` and `measure` are shared; `encoders`, `slt` and `tokenizers` are one study each; `ranks`
compares their models.
"""
