"""The images and containers: docs/benchmarks/containers.md."""
