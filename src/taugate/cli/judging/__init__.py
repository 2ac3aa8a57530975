"""User interfaces for judging: the terminal, and a page in a browser on the same machine."""
