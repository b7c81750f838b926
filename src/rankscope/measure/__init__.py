"""Measurements on a checkpoint; each module is one use case and loads only what it needs."""
