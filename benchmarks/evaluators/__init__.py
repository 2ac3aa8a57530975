"""Evaluators that others wrote, on the real service: docs/benchmarks/evaluators.md."""
