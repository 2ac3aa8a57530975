"""Who may ask for what, and how often: API keys, their scopes and their rates."""
