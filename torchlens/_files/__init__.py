"""Tensors on disk: streamed out by a thread while a model runs, read back memory-mapped. Knows no traces."""
