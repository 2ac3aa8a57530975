"""Who may ask: API keys, what each path asks of them, their rates, and the names that requests may use."""
