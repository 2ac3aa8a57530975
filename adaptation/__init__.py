"""Encoders that are adapted to a domain, and admitted only where they are shown to be better."""
