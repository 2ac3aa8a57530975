"""What was answered before, or is being answered: in this process, in Redis, in flight."""
