"""Benchmarks of evidence that others can check: releases re-derived, and edits found (benchmarks/results/certificate.md)."""
