"""The process that all rooms of the service share: its threads, memory, logs, traces and ids."""
