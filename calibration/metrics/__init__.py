"""What is measured on queries: one measure a file, and the bootstrap they share."""
