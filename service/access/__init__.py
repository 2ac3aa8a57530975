"""Who may ask what, how often, and within which filter."""
