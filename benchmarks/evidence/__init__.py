"""Benchmarks of evidence by document: how often it errs (benchmarks/results/evidence.md)."""
