"""Query PCA: fitted on query embeddings, judged on queries it was not fitted on, used where the gate admits it."""
