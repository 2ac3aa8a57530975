"""Promotion by rule: whether a new release may take the current one's place (docs/promotion.md)."""
