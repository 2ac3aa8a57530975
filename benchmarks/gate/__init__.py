"""Benchmarks of the gate: the loss of projections, precisions and indexes (benchmarks/results/gate.md)."""
