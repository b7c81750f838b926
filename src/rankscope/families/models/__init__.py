"""Embeddings of Time-MoE, WaveToken and TOTEM as small torch modules that train in seconds to minutes on a CPU.

The published code of the three needs remote code, pickles or packages of its own; where a rank depends on a setting,
these modules follow the papers (Shi et al. 2025, Masserano et al. 2025, Talukder et al. 2024).
"""
