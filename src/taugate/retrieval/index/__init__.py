"""The k most similar documents: exact and approximate indexes in FAISS, and BM25 over the terms."""
