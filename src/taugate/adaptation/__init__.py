"""Adapt an encoder to a domain, and admit it only if it is shown to be better."""
