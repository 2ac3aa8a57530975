"""Benchmarks of drift alarms: what they find, and how soon (docs/benchmarks/drift.md)."""
