"""Server processes on uvicorn: a single process or several workers, their sockets and connections."""
