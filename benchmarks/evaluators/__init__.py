"""Evaluators that others wrote, on the real service: benchmarks/results/evaluators.md."""
