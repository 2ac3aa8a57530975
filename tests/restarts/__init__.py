"""Rolling restarts under clients that keep connections and never retry."""
