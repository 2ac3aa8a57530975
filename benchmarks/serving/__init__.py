"""Throughput, latency and overload of the service and its peers: benchmarks/results/serving.md."""
