"""Certified limits on the loss that a threshold costs."""
