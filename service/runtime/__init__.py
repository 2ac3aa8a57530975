"""What every room of the service needs of its process: threads, memory, logs, traces, ids."""
