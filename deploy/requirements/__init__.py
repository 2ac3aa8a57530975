"""Requirements pinned by hash: what writes them, and what asks for their known vulnerabilities."""
