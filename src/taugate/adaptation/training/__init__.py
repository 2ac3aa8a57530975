"""Training through the encoder: its weights change, not only what is done with its embeddings."""
