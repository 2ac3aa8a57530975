"""Milvus, PostgreSQL and clusters of encoding processes, for Taugate."""
