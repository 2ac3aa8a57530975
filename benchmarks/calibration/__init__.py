"""Benchmarks of calibration: benchmarks/results/{calibration,abstention,acceptance}.md."""
