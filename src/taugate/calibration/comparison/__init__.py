"""A candidate release beside the current one: whether it may take its place."""
