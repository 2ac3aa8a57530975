"""Ids of replies to keys with a filter: recognized by every replica, and silent about the filter."""

import hashlib
import json
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from taugate.service.access.authorization import Authorizer
from taugate.service.http.exchange import Caller, may_judge
from taugate.service.metrics import Metrics
from taugate.service.settings import Settings
from tests.service.access.files import api_key, entry

TENANT, OTHER = {"tenant": "a"}, {"tenant": "b"}


def replica(*entries: dict[str, Any]) -> Authorizer:
    """One that has just started with a list of keys."""
    return Authorizer(Settings(releases=Path("nowhere"), keys=SecretStr(json.dumps(entries))), Metrics())


def key(name: str, query_filter: dict[str, Any]) -> dict[str, Any]:
    return entry(name, name, "search", filter=query_filter)


def reply_to(name: str, query_filter: dict[str, Any]) -> str:
    return Caller("request", {}, key=api_key(name, filter=query_filter)).reply_id()


def test_replicas_and_restarts_accept_ids_of_same_filter() -> None:
    one = replica(key("a", TENANT), key("also-a", TENANT), key("b", OTHER))
    other = replica(key("b", OTHER), key("new", TENANT), key("a", TENANT))
    permitted, elsewhere = (api_key("a", filter=each).filter for each in (TENANT, OTHER))
    for _ in range(10):
        query_id = reply_to("a", TENANT)
        for server in (one, other):
            assert may_judge(permitted, query_id, server.secrets(permitted))
            assert not may_judge(elsewhere, query_id, server.secrets(elsewhere))
    assert not may_judge(permitted, reply_to("removed", TENANT), one.secrets(permitted))


def test_reply_id_confirms_no_guess_of_filter() -> None:
    """Neither by a hash without a secret, nor with the secret of another key."""
    query_id, permitted = reply_to("a", TENANT), api_key("a", filter=TENANT).filter
    digits = query_id[:16]
    for guess in (f"{digits}{permitted!r}", f"{permitted!r}{digits}", f"{permitted!r}"):
        assert hashlib.sha256(guess.encode()).hexdigest()[:16] != query_id[16:]
    assert not may_judge(permitted, query_id, ["", api_key("b").sha256])
    assert not may_judge(permitted, query_id)
