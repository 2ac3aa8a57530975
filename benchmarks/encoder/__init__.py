"""The exported encoder beside PyTorch: docs/benchmarks/encoder.md."""
