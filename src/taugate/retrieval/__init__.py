"""From a text to the results that are kept, and the release that says how: the same code calibrates and serves."""
