"""Bounds of the rank paper as pure functions, and the constructions that show them tight."""
