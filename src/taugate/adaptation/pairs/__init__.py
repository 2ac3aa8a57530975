"""What an adaptation learns from: queries, each with documents that answer it, and documents that do not."""
