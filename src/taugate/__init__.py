"""Retrieval with a similarity threshold that is calibrated, not guessed."""
