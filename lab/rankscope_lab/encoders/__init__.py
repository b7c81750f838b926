"""Audit of input encoders for multichannel series."""
