"""Requirements pinned by hash, the program that writes them, and an audit of their known vulnerabilities."""
