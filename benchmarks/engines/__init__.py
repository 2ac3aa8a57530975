"""What an engine finds and how long it takes, beside exact search in the process."""
