"""Indexes that find the k most similar documents: exact and approximate ones in FAISS, and BM25 over the terms."""
