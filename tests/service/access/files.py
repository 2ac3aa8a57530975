"""API keys for tests, and files with them."""

import json
from pathlib import Path
from typing import Any

from taugate.service.access.authorization import ApiKey, digest

APP, OLD, OPS, SCRAPER, JUDGE = "app-secret", "old-secret", "ops-secret", "scraper-secret", "judge-secret"
WITHIN, SLOW = "within-secret", "slow-secret"  # of the fixture `keyed`


def entry(key: str, name: str, *scopes: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "sha256": digest(key.encode()).hex(), "scopes": list(scopes), **more}


def api_key(name: str, **more: Any) -> ApiKey:
    return ApiKey.model_validate(entry(name, name, "search", **more))


ENTRIES = [
    entry(APP, "app", "search"),
    entry(OPS, "ops", "admin"),
    entry(SCRAPER, "scraper", "metrics"),
    entry(JUDGE, "judge", "feedback"),
    entry(OLD, "old", "search", expires="2020-01-01T00:00:00Z"),
]


def write(path: Path, entries: Any) -> Path:
    """Put a file in the place of another, as editors and Kubernetes do."""
    fresh = path.with_suffix(".new")
    fresh.write_text(entries if isinstance(entries, str) else json.dumps(entries), encoding="utf-8")
    return fresh.replace(path)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}
