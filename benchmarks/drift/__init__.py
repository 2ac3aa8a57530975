"""Benchmarks of drift alarms: what they find, and how soon (benchmarks/results/drift.md)."""
