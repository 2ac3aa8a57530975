"""Labels for Taugate: judge results in the browser, make queries from documents, learn from traffic."""
