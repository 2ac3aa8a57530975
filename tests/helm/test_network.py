"""Service, Ingress, NetworkPolicies."""

from pathlib import Path

import helm_python
import pytest

from taugate.service.access.authorization import AllowedHosts
from taugate.service.errors import Forbidden
from taugate.service.settings import Settings
from tests.helm.rendered import KEYS, VARIANTS, Values, at, merged, plain, render

POLICY = at("networkPolicy.enabled", True)
MILVUS = merged(at("engine.url", "http://milvus:19530"), at("image.repository", "taugate/service-milvus"))
OWN_REDIS = at("redis", {"enabled": True, "passwordSecret": "redis"})


def test_service_targets_container_port() -> None:
    rendered = render(KEYS, at("service.port", 8080))
    (port,) = rendered.one("Service")["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (8080, "http")
    (listening,) = rendered.container["ports"]
    assert (listening["name"], str(listening["containerPort"])) == ("http", rendered.environment["TAUGATE_PORT"])


def test_service_has_type_and_annotations() -> None:
    service = render(KEYS, at("service", {"type": "LoadBalancer", "annotations": {"a.example/b": "c"}})).one("Service")
    assert service["spec"]["type"] == "LoadBalancer"
    assert service["metadata"]["annotations"] == {"a.example/b": "c"}
    assert "annotations" not in render(KEYS).one("Service")["metadata"]


def test_no_ingress_by_default() -> None:
    assert render(KEYS, at("ingress.className", "nginx")).of("Ingress") == []


def test_ingress_routes_named_paths() -> None:
    spec = render(VARIANTS["all"]).one("Ingress")["spec"]
    (rule,) = spec["rules"]
    assert rule["host"] == "search.example.org"
    assert [(path["path"], path["pathType"]) for path in rule["http"]["paths"]] == [
        ("/search", "Prefix"),
        ("/feedback", "Exact"),
    ]
    assert {path["backend"]["service"]["name"] for path in rule["http"]["paths"]} == {"shop-taugate"}
    assert spec["ingressClassName"] == "nginx"
    assert spec["tls"] == [{"hosts": ["search.example.org"], "secretName": "search-tls"}]


def test_route_of_gateway_leads_to_service() -> None:
    parents, hosts = [{"name": "public"}], ["search.example.com"]
    rendered = render(KEYS, at("httpRoute", {"parentRefs": parents, "hostnames": hosts}), at("service.port", 8080))
    spec = rendered.one("HTTPRoute")["spec"]
    assert (spec["parentRefs"], spec["hostnames"]) == (parents, hosts)
    (rule,) = spec["rules"]
    assert [match["path"]["value"] for match in rule["matches"]] == ["/search", "/feedback"]
    assert rule["backendRefs"] == [{"name": "shop-taugate", "port": 8080}]
    assert "search.example.com" in rendered.environment["TAUGATE_ALLOWED_HOSTS"].split(",")
    own = [{"matches": [{"path": {"type": "Exact", "value": "/gate"}}], "timeouts": {"request": "6s"}}]
    (given,) = render(KEYS, at("httpRoute", {"parentRefs": parents, "rules": own})).one("HTTPRoute")["spec"]["rules"]
    assert given == {**own[0], "backendRefs": [{"name": "shop-taugate", "port": 80}]}
    assert render(KEYS).of("HTTPRoute") == []


def test_policies_allow_what_a_private_store_needs_and_no_more() -> None:
    rendered = render(VARIANTS["minio"])
    egress = rendered.one("NetworkPolicy")["spec"]["egress"]
    assert ports(egress) == [[53, 53], ["redis"], [8443], [9000]]
    assert ports(rendered.one("NetworkPolicy", "-calibration")["spec"]["egress"]) == [
        [53, 53],
        [8443],
        ["http"],
        [9000],
    ]
    for pod in (rendered.pod, rendered.job["spec"]["template"]["spec"]):
        (container,) = pod["containers"]
        assert {"name": "authority", "mountPath": "/etc/ssl/private-authority", "readOnly": True} in (
            container["volumeMounts"]
        )
        assert plain(container)["AWS_CA_BUNDLE"] == plain(container)["SSL_CERT_FILE"]


def asked_for(*values: Values) -> list[str]:
    return render(*values).environment["TAUGATE_ALLOWED_HOSTS"].split(",")


def test_cluster_names_are_allowed_hosts() -> None:
    names = ["shop-taugate", "shop-taugate.team", "shop-taugate.team.svc", "shop-taugate.team.svc.cluster.local"]
    assert asked_for(KEYS) == ["localhost", *names]


def test_ingress_and_extra_hosts_are_allowed() -> None:
    further = at("listen.allowedHosts", ["gateway.example.org", "*.shop.example", "localhost"])
    assert asked_for(VARIANTS["all"], further)[5:] == ["search.example.org", "gateway.example.org", "*.shop.example"]


@pytest.mark.parametrize("wrong", ["a:8000", "https://a", "a,b", "", "*a.example", "a b"])
def test_invalid_allowed_host_is_refused(wrong: str) -> None:
    with pytest.raises(helm_python.HelmValuesError, match="allowedHosts"):
        asked_for(KEYS, at("listen.allowedHosts", [wrong]))


def test_service_parses_allowed_hosts() -> None:
    rendered = render(VARIANTS["all"], at("listen.allowedHosts", ["*.shop.example"]))
    names = rendered.environment["TAUGATE_ALLOWED_HOSTS"]
    hosts = AllowedHosts(Settings(releases=Path("releases"), allowed_hosts=names))
    for name in ("shop-taugate:80", "search.example.org", "a.shop.example", "10.0.0.7:8000", "[fd00::7]:8000"):
        hosts.check(name.encode())
    with pytest.raises(Forbidden):
        hosts.check(b"evil.example")


def test_no_policy_by_default() -> None:
    assert render(KEYS, OWN_REDIS).of("NetworkPolicy") == []


def ports(rules: list[dict]) -> list[list[int | str]]:
    return [[port["port"] for port in rule["ports"]] for rule in rules]


def test_policy_allows_searches_and_configured_egress() -> None:
    spec = render(KEYS, POLICY).one("NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["ingress"] == [{"ports": [{"port": "http", "protocol": "TCP"}]}]
    assert ports(spec["egress"]) == [[53, 53]]


def test_policy_limits_callers() -> None:
    callers = [{"podSelector": {"matchLabels": {"app": "web"}}}]
    key = at("tests.key", "search-key")
    rendered = render(KEYS, POLICY, key, at("networkPolicy.ingressFrom", callers))
    *given, test = rendered.one("NetworkPolicy")["spec"]["ingress"][0]["from"]
    assert given == callers
    assert (
        test["podSelector"]["matchLabels"].items() <= rendered.one("Pod", "-test-search")["metadata"]["labels"].items()
    )


@pytest.mark.parametrize(
    ("values", "port"),
    [
        (at("redis.url", "redis://redis:6379"), 6379),
        (at("redis.url", "rediss://:p@redis:6380/0"), 6380),
        (at("redis.existingSecret", "redis"), 6379),
        (MILVUS, 19530),
        (at("engine.url", "postgresql://db/taugate"), 5432),
        (at("engine.url", "postgresql://db:6432/taugate"), 6432),
        ({"releases": {"url": "s3://b/t"}}, 443),
        (at("networkPolicy.extraEgress", [{"ports": [{"port": 8443}]}]), 8443),
        (at("settings.otlp_endpoint", "http://collector.observability:4318"), 4318),
        (at("encoderEndpoint.url", "https://models.example/v1"), 443),
        (at("rerankEndpoint.url", "http://reranker"), 80),
    ],
)
def test_policy_allows_required_egress(values: dict, port: int) -> None:
    assert ports(render(KEYS, POLICY, values).one("NetworkPolicy")["spec"]["egress"]) == [[53, 53], [port]]


def test_policies_let_recalibration_ask_the_service() -> None:
    callers = at("networkPolicy.ingressFrom", [{"podSelector": {"matchLabels": {"app": "web"}}}])
    rendered = render(KEYS, POLICY, callers, VARIANTS["recalibrate"])
    pod = rendered.job["spec"]["template"]["metadata"]["labels"]
    sources = rendered.one("NetworkPolicy")["spec"]["ingress"][0]["from"]
    assert any(source["podSelector"]["matchLabels"].items() <= pod.items() for source in sources[1:])
    service = rendered.one("NetworkPolicy")["spec"]["podSelector"]
    rules = rendered.one("NetworkPolicy", "-calibration")["spec"]["egress"]
    assert {"to": [{"podSelector": service}], "ports": [{"port": "http", "protocol": "TCP"}]} in rules


def test_redis_policy_allows_service_only() -> None:
    rendered = render(KEYS, POLICY, OWN_REDIS)
    policy = rendered.one("NetworkPolicy", "-redis")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "egress" not in policy
    (rule,) = policy["ingress"]
    (source,) = rule["from"]
    service = rendered.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert source["podSelector"]["matchLabels"].items() <= service.items()
    assert rendered.one("NetworkPolicy")["spec"]["egress"][1]["to"][0]["podSelector"] == policy["podSelector"]


def test_calibration_policy_denies_ingress() -> None:
    assert [obj["metadata"]["name"] for obj in render(KEYS, POLICY).of("NetworkPolicy")] == ["shop-taugate"]
    rendered = render(KEYS, POLICY, VARIANTS["recalibrate"])
    policy = rendered.one("NetworkPolicy", "-calibration")["spec"]
    assert "ingress" not in policy
    assert "Ingress" in policy["policyTypes"]
    labels = rendered.job["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
