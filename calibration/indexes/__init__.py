"""Indexes that are smaller or faster than an exact one in float32, used where the gate admits them."""
