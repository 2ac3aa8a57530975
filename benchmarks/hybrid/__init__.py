"""The lexical share in the score: what it gives, by which weight, and how the gate accepts it."""
