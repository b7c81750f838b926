"""Audit of input encoders for series of several channels."""
