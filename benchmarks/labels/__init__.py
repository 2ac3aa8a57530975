"""Benchmarks of estimates from few labels and a machine's scores (docs/benchmarks/few-labels.md)."""
