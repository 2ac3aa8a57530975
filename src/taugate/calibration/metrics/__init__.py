"""Accuracy, NDCG and the papers' measures, with bootstrapped intervals."""
