"""Access control: API keys, the scope that each path requires, rate limits and allowed host names."""
