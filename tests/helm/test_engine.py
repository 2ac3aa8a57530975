"""The engine's URL, its secret as a file, and network access to it, for the service and for calibrations."""

import pytest

from tests.helm.rendered import KEYS, VARIANTS, Rendered, at, check, plain, render

MOUNT = {"name": "engine", "mountPath": "/etc/taugate/engine", "readOnly": True}


def _pods(rendered: Rendered) -> list[dict]:
    return [rendered.pod, rendered.job["spec"]["template"]["spec"]]


def test_no_engine_by_default() -> None:
    rendered = render(KEYS)
    assert "TAUGATE_ENGINE_URL" not in rendered.environment
    assert "engine" not in {volume["name"] for volume in rendered.pod["volumes"]}


def test_pods_have_engine_url_and_secret() -> None:
    rendered = render(VARIANTS["engine"])
    for pod in _pods(rendered):
        (container,) = pod["containers"]
        given = plain(container)
        assert given["TAUGATE_ENGINE_URL"] == "postgresql://taugate@postgres/taugate"
        assert given["TAUGATE_ENGINE_TOKEN_FILE"] == "/etc/taugate/engine/password"  # noqa: S105
        assert MOUNT in container["volumeMounts"]
        volume = next(volume for volume in pod["volumes"] if volume["name"] == "engine")
        assert volume["secret"] == {"secretName": "postgres", "defaultMode": 0o440}
    assert rendered.environment["TAUGATE_DEADLINE_MS"] == "engine_ms=1500"
    for obj in rendered.objects:
        check(obj)


@pytest.mark.parametrize(("name", "secret"), [("encoder", "models"), ("rerank", "rerankers")])
def test_pods_have_key_of_endpoint(name: str, secret: str) -> None:
    for pod in _pods(render(VARIANTS["engine"])):
        (container,) = pod["containers"]
        assert plain(container)[f"TAUGATE_{name.upper()}_URL"].endswith(f",key_file=/etc/taugate/{name}/key")
        assert {"name": name, "mountPath": f"/etc/taugate/{name}", "readOnly": True} in container["volumeMounts"]
        assert {"secretName": secret, "defaultMode": 0o440} in [volume.get("secret") for volume in pod["volumes"]]


def test_engine_without_secret_has_no_volume() -> None:
    rendered = render(VARIANTS["milvus"], at("engine.tokenSecret", None))
    assert rendered.environment["TAUGATE_ENGINE_URL"] == "http://milvus:19530"
    assert "TAUGATE_ENGINE_TOKEN_FILE" not in rendered.environment
    assert MOUNT not in rendered.container["volumeMounts"]


def test_policies_allow_engine_egress() -> None:
    rendered = render(VARIANTS["engine"])
    # With the port of its encoder's endpoint; a calibration also asks the service.
    for suffix, more in (("", []), ("-calibration", ["http"])):
        egress = rendered.one("NetworkPolicy", suffix)["spec"]["egress"]
        assert [port["port"] for rule in egress for port in rule["ports"]] == [53, 53, 5432, 443, *more]
