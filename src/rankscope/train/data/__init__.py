"""Series to pretrain on: generated, mixed, corrupted and streamed, every batch a function of the seed and its index."""
