"""Benchmarks of evidence by document: how often it errs (docs/benchmarks/evidence.md)."""
