"""Chooses the threshold and the policy, by the papers' rule or with a certificate."""
