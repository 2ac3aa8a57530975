"""A key file is accepted as a whole, or refused with one message that names the entry and shows no hash."""

import hmac
import json
from typing import Any

import pytest

from taugate.errors import InputError
from taugate.service.access import authorization
from taugate.service.access.authorization import ApiKey, check_keys, parse_keys
from tests.service.access.files import APP, ENTRIES, entry

GOOD = entry(APP, "app", "search")
FAULTS: dict[str, tuple[Any, str]] = {
    "no JSON": ("[{", "keys.json: Invalid JSON"),
    "no list": ({"name": "app"}, "keys.json: Input should be a valid array"),
    "no object": ([7], "entry 1: Input should be an object"),
    "no scope": ([GOOD | {"scopes": []}], "entry 1: scopes: "),
    "no such scope": ([GOOD, entry("b", "b", "root")], "entry 2: scopes.0: Input should be 'search'"),
    "no hash": ([{"name": "app", "scopes": ["search"]}], "entry 1: sha256: Field required"),
    "half a hash": ([GOOD | {"sha256": GOOD["sha256"][:32]}], "entry 1: sha256: "),
    "the key itself": ([GOOD | {"key": APP}], "entry 1: key: Extra inputs"),
    "a name with a line feed": ([GOOD | {"name": "app\n"}], "entry 1: name: "),
    "a name with spaces": ([GOOD | {"name": "my app"}], "entry 1: name: "),
    "a rate of 0": ([GOOD | {"queries_per_second": 0}], "entry 1: queries_per_second: "),
    "a rate in words": ([GOOD | {"queries_per_second": "50"}], "entry 1: queries_per_second: "),
    "a day without a time zone": ([GOOD | {"expires": "2030-01-01T00:00:00"}], "entry 1: expires: "),
    "a number as a day": ([GOOD | {"expires": 1893456000}], "entry 1: expires: "),
    "a name twice": ([GOOD, entry("b", "app", "search")], "entry 2: another key is already named app"),
    "a key twice": ([GOOD, GOOD | {"name": "b"}], "entry 2: b repeats an earlier key"),
}


def parse(entries: Any) -> list[ApiKey]:
    text = entries if isinstance(entries, str) else json.dumps(entries)
    keys = parse_keys(text.encode(), "keys.json")
    check_keys(keys, "keys.json")
    return keys


@pytest.mark.parametrize(("entries", "message"), FAULTS.values(), ids=FAULTS.keys())
def test_invalid_entry_is_named(entries: Any, message: str) -> None:
    with pytest.raises(InputError) as refused:
        parse(entries)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert GOOD["sha256"][:32] not in str(refused.value)
    assert APP not in str(refused.value)


def test_non_utf8_keys_are_refused() -> None:
    with pytest.raises(InputError, match="keys.json: "):
        parse_keys(b'[{"name": "\xe9"}]', "keys.json")


def test_entry_becomes_api_key() -> None:
    (key,) = parse([GOOD | {"queries_per_second": 2, "expires": "2030-01-01T01:00:00+01:00"}])
    assert (key.name, key.sha256, key.scopes) == ("app", GOOD["sha256"], ["search"])
    assert (key.queries_per_second, key.expires.timestamp(), key.filter) == (2.0, 1893456000.0, ())
    assert parse([]) == []


@pytest.mark.parametrize("sent", [APP, "judge-secret", "nobody's"])
def test_every_key_is_compared_in_constant_time(sent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    in_constant_time = hmac.compare_digest

    def compare(one: str, other: str) -> bool:
        compared.append(other)
        return in_constant_time(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    keys = parse(ENTRIES)
    found = authorization.find_key(keys, sent.encode())
    assert (found.name if found else None) == {APP: "app", "judge-secret": "judge"}.get(sent)
    assert compared == [key.sha256 for key in keys]
