"""The releases directory: its releases, which one is current, and how that changes."""
