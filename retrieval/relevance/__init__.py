"""How probable it is that a retrieved document is relevant: what a score means against its background."""
