"""Adapts an encoder to a domain, and accepts it only if it is shown to be better."""
