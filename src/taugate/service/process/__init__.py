"""Server processes on uvicorn: one or several workers, their sockets and connections."""
