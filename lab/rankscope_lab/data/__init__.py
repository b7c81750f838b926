"""Data of the lab: a generated benchmark of channels, and the ETT tables."""
