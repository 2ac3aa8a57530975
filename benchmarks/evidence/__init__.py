"""How often evidence by document errs: docs/benchmarks/evidence.md."""
