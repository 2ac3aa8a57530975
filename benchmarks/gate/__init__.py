"""What projections, precisions and indexes lose, and what the gate notices: docs/benchmarks/gate.md."""
