"""Words that a query and a document share, beside what their vectors say."""
