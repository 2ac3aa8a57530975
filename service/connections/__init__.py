"""Connections: how many there may be, and how long a client may take."""
