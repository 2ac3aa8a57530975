"""API keys, public keys, service accounts."""

import json

import helm_python
import pytest

from taugate.service.access.authorization import parse_keys
from tests.helm.rendered import KEYS, VARIANTS, Values, at, render, secrets

ANYONE = at("settings.allow_unauthenticated", True)
PEM = "-----BEGIN PUBLIC KEY-----\nMCow\n-----END PUBLIC KEY-----\n"


def volume(values: Values, name: str) -> dict[str, object] | None:
    return next((volume for volume in render(values).pod["volumes"] if volume["name"] == name), None)


def test_no_key_secret_without_entries() -> None:
    assert render(KEYS).of("Secret") == render(ANYONE).of("Secret") == []
    assert volume(ANYONE, "keys") is None
    assert "TAUGATE_KEYS_FILE" not in render(ANYONE).environment


def test_existing_key_secret_is_mounted() -> None:
    assert volume(KEYS, "keys") == {"name": "keys", "secret": {"secretName": "taugate-keys", "defaultMode": 0o440}}
    mounts = {mount["name"]: mount for mount in render(KEYS).container["volumeMounts"]}
    # A folder, not one file of it (subPath): only so does a changed Secret reach the pod.
    assert mounts["keys"] == {"name": "keys", "mountPath": "/etc/taugate/keys", "readOnly": True}


def test_entries_become_readable_key_file() -> None:
    rendered = render(VARIANTS["all"])
    text = rendered.one("Secret", "-keys")["stringData"]["keys.json"]
    entries = parse_keys(text.encode(), "keys.json")
    assert [(entry.name, entry.queries_per_second) for entry in entries] == [("shop", 50), ("prometheus", None)]
    assert [condition.field for condition in entries[0].filter] == ["tenant", "year"]
    assert json.loads(text)[1]["expires"] == "2030-01-01T00:00:00Z"
    assert volume(VARIANTS["all"], "keys")["secret"]["secretName"] == "shop-taugate-keys"


def test_key_filter_without_condition_is_refused() -> None:
    """It would permit every document, perhaps by mistake; the service refuses it as well."""
    entry = {"name": "shop", "sha256": "0" * 64, "scopes": ["search"], "filter": {}}
    with pytest.raises(helm_python.HelmValuesError, match="filter"):
        render(at("keys.entries", [entry]))


def test_keys_from_variable() -> None:
    assert "TAUGATE_KEYS" not in secrets(render(KEYS).container)
    values = {"keys": {"variable": "more/list"}}
    assert secrets(render(values).container)["TAUGATE_KEYS"] == ("more", "list")


def test_no_trusted_keys_by_default() -> None:
    assert volume(KEYS, "trusted") is None
    assert [obj["metadata"]["name"] for obj in render(KEYS).of("ConfigMap")] == ["shop-taugate"]


def test_trusted_keys_are_from_a_secret() -> None:
    assert volume({**KEYS, "trustedKeys": {"existingSecret": "ours"}}, "trusted")["secret"]["secretName"] == "ours"


def test_trusted_keys_add_private_copy() -> None:
    """Its root file system is read-only, and it serves a signed release from a private copy."""
    assert volume(KEYS, "cache") is None
    rendered = render(KEYS, at("trustedKeys.existingSecret", "ours"))
    assert (
        next(volume for volume in rendered.pod["volumes"] if volume["name"] == "cache")["emptyDir"]["sizeLimit"]
        == "4Gi"
    )
    assert {"name": "cache", "mountPath": "/cache"} in rendered.container["volumeMounts"]
    assert rendered.environment["TAUGATE_CACHE"] == "/cache"


def test_existing_service_account_is_used() -> None:
    rendered = render(KEYS, at("serviceAccount", {"name": "ours"}))
    assert rendered.of("ServiceAccount") == []
    assert rendered.pod["serviceAccountName"] == "ours"


def test_service_account_has_cloud_role() -> None:
    role = {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/reader"}
    rendered = render(KEYS, at("serviceAccount.annotations", role))
    (account,) = rendered.of("ServiceAccount")
    assert account["metadata"]["name"] == rendered.pod["serviceAccountName"] == "shop-taugate"
    assert account["metadata"]["annotations"] == role
    assert account["automountServiceAccountToken"] is False
