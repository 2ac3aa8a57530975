"""Processes, sockets and connections, on uvicorn."""
