"""What adaptation gains on public data sets, on queries and documents that it has not seen."""
