"""API keys, public keys, service accounts."""

import json

import helm_python
import pytest

from taugate.service.access.keys import parse_entries
from tests.helm.rendered import KEYS, VARIANTS, Values, at, render, secrets

ANYONE = at("settings.allow_unauthenticated", True)
PEM = "-----BEGIN PUBLIC KEY-----\nMCow\n-----END PUBLIC KEY-----\n"


def volume(values: Values, name: str) -> dict[str, object] | None:
    return next((each for each in render(values).pod["volumes"] if each["name"] == name), None)


def test_no_secret_of_keys_where_one_exists_or_none_is_wanted() -> None:
    assert render(KEYS).of("Secret") == render(ANYONE).of("Secret") == []
    assert volume(ANYONE, "keys") is None
    assert "TAUGATE_KEYS_FILE" not in render(ANYONE).environment


def test_keys_of_a_secret_that_exists() -> None:
    assert volume(KEYS, "keys") == {"name": "keys", "secret": {"secretName": "taugate-keys", "defaultMode": 0o440}}
    mounts = {mount["name"]: mount for mount in render(KEYS).container["volumeMounts"]}
    # A folder, not one file of it (subPath): only so does a changed Secret reach the pod.
    assert mounts["keys"] == {"name": "keys", "mountPath": "/etc/taugate/keys", "readOnly": True}


def test_the_secret_that_is_made_of_entries_is_a_file_that_the_service_reads() -> None:
    rendered = render(VARIANTS["all"])
    text = rendered.one("Secret", "-keys")["stringData"]["keys.json"]
    entries = parse_entries(text.encode(), "keys.json")
    assert [(entry.name, entry.queries_per_second) for entry in entries] == [("shop", 50), ("prometheus", None)]
    assert [condition.field for condition in entries[0].filter] == ["tenant", "year"]
    assert json.loads(text)[1]["expires"] == "2030-01-01T00:00:00Z"
    assert volume(VARIANTS["all"], "keys")["secret"]["secretName"] == "shop-taugate-keys"


def test_a_key_whose_filter_has_no_condition_is_refused() -> None:
    """It would permit every document, perhaps by mistake; the service refuses it as well."""
    entry = {"name": "shop", "sha256": "0" * 64, "scopes": ["search"], "filter": {}}
    with pytest.raises(helm_python.HelmValuesError, match="filter"):
        render(at("keys.entries", [entry]))


def test_keys_for_a_variable() -> None:
    assert "TAUGATE_KEYS" not in secrets(render(KEYS).container)
    values = {"keys": {"variable": {"existingSecret": "more", "key": "list"}}}
    assert secrets(render(values).container)["TAUGATE_KEYS"] == ("more", "list")


def test_nobody_is_trusted_unless_named() -> None:
    assert volume(KEYS, "trusted") is None
    assert [each["metadata"]["name"] for each in render(KEYS).of("ConfigMap")] == ["shop-taugate"]


def test_public_keys_from_values_a_config_map_or_a_secret() -> None:
    rendered = render(KEYS, at("trustedKeys.pem", PEM))
    assert rendered.one("ConfigMap", "-trusted")["data"] == {"trusted.pem": PEM}
    assert {"name": "trusted", "configMap": {"name": "shop-taugate-trusted"}} in rendered.pod["volumes"]
    assert volume({**KEYS, "trustedKeys": {"existingConfigMap": "ours"}}, "trusted")["configMap"] == {"name": "ours"}
    assert volume({**KEYS, "trustedKeys": {"existingSecret": "ours"}}, "trusted")["secret"]["secretName"] == "ours"


def test_a_pod_that_trusts_keys_has_room_for_a_copy_that_is_its_own() -> None:
    """Its root file system is read-only, and it serves a signed release from a copy that nobody else may change."""
    assert volume(KEYS, "cache") is None
    rendered = render(KEYS, at("trustedKeys.pem", PEM))
    assert next(each for each in rendered.pod["volumes"] if each["name"] == "cache")["emptyDir"]["sizeLimit"] == "4Gi"
    assert {"name": "cache", "mountPath": "/cache"} in rendered.container["volumeMounts"]
    assert rendered.environment["TAUGATE_RELEASES_COPY"].startswith("/cache/")


def test_no_service_account_where_one_is_there() -> None:
    rendered = render(KEYS, at("serviceAccount", {"create": False, "name": "ours"}))
    assert rendered.of("ServiceAccount") == []
    assert rendered.pod["serviceAccountName"] == "ours"
    assert render(KEYS, at("serviceAccount.create", False)).pod["serviceAccountName"] == "default"


@pytest.mark.parametrize(("name", "made"), [(None, "shop-taugate"), ("reader", "reader")])
def test_a_service_account_with_the_role_of_a_cloud(name: str | None, made: str) -> None:
    role = {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/reader"}
    rendered = render(KEYS, at("serviceAccount", {"name": name, "annotations": role}))
    (account,) = rendered.of("ServiceAccount")
    assert account["metadata"]["name"] == rendered.pod["serviceAccountName"] == made
    assert account["metadata"]["annotations"] == role
    assert account["automountServiceAccountToken"] is False
