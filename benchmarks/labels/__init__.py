"""Benchmarks of estimates from few labels and a machine's scores (benchmarks/results/few-labels.md)."""
