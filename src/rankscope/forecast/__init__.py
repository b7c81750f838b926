"""Fast inference: drop-in pipelines with less time and memory than the stock ones."""
