"""Clients in Java, Go, Node, curl and ab against a running service."""
