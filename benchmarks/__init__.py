"""The figures of benchmarks/results: each page has a module here that measures it, run as `python -m benchmarks.<area>.tables`."""
