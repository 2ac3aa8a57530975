"""Benchmarks of calibration: docs/benchmarks/{calibration,abstention,acceptance}.md."""
