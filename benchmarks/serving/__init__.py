"""Throughput, latency and overload of the service and its peers: docs/benchmarks/serving.md."""
