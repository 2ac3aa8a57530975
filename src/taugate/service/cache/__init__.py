"""Replies that are remembered, in memory and in Redis."""
