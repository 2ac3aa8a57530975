"""Benchmarks of the gate: the loss of projections, precisions and indexes (docs/benchmarks/gate.md)."""
