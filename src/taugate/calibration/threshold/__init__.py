"""Which threshold is in force."""
