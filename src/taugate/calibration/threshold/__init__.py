"""Chooses the policy and its threshold."""
