"""What a threshold is worth to an application that hands passages to a language model: docs/benchmarks/rag.md."""
