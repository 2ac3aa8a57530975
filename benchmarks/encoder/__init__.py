"""The exported encoder beside PyTorch: benchmarks/results/encoder.md."""
