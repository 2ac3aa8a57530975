"""From a model and texts to vectors: export once, encode what is new."""
