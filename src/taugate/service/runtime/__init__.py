"""Runtime of the process, shared by all packages of the service: threads, memory, logs and traces."""
