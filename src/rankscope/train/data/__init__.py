"""Training data: synthetic series, mixing, augmentation and streaming, deterministic for a seed and batch index."""
