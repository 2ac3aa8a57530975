"""The embeddings of a data set, computed once."""
