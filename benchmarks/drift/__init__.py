"""What alarms of drift find, and how soon: docs/benchmarks/drift.md."""
