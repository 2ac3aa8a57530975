"""How a request gets in: connections and their limits."""
