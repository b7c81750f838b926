"""Experiments on what surrounds attention: input encoders, kinds of layers, tokenizers, and the ranks that they set.

`blocks` and `data` are shared; `encoders`, `slt` and `tokenizers` are one study each; `ranks` measures what they trained.
"""
