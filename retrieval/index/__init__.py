"""Top-K by cosine similarity: FAISS proposes documents, one definition of similarity scores them."""
