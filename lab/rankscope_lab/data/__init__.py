"""Data sets: a synthetic multichannel benchmark, and the ETT tables."""
