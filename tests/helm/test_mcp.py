"""The MCP server: not there unless asked for; then with its key, its names, and what it may reach."""

import helm_python
import pytest

from taugate_mcp.command import parser
from taugate_mcp.transports import GRACE_SECONDS
from tests.helm.rendered import KEYS, VARIANTS, Rendered, at, merged, render, secrets

ON = at("mcp", {"enabled": True, "keySecret": {"existingSecret": "agents-key"}})
POLICY = at("networkPolicy.enabled", True)


def pod(rendered: Rendered) -> dict:
    return rendered.one("Deployment", "-mcp")["spec"]["template"]["spec"]


def test_it_does_not_render_when_disabled() -> None:
    off = merged(KEYS, POLICY, at("mcp", {"enabled": False, "key": "k", "replicas": 3, "ingressFrom": [{}]}))
    assert [each["metadata"]["name"] for each in render(off).objects if "mcp" in each["metadata"]["name"]] == []
    assert [path for path in render(KEYS).texts if path.startswith("mcp/")] == []


def test_it_asks_the_service_and_answers_to_its_own_names() -> None:
    rendered = render(
        KEYS, ON, at("service.port", 8080), at("listen.host", "::"), at("mcp.allowedHosts", ["agents.example.org"])
    )
    (container,) = pod(rendered)["containers"]
    assert container["command"] == ["taugate-mcp"]
    given = parser().parse_args(container["args"])
    assert (given.transport, given.host, given.url) == ("http", "::", "http://shop-taugate:8080")
    assert [port["containerPort"] for port in container["ports"]] == [given.port]
    names = ["shop-taugate-mcp", "shop-taugate-mcp.team", "shop-taugate-mcp.team.svc"]
    assert given.allowed_hosts == [*names, "shop-taugate-mcp.team.svc.cluster.local", "agents.example.org"]
    (port,) = rendered.one("Service", "-mcp")["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (80, "http")


def test_requests_in_flight_have_the_time_that_they_are_given() -> None:
    for given, seconds in ((None, 5), (0, 0), (10, 10)):
        spec = pod(render(KEYS, ON, at("rollout.preStopSeconds", given)))
        assert spec["terminationGracePeriodSeconds"] >= seconds + GRACE_SECONDS + 5
        hook = spec["containers"][0].get("lifecycle", {}).get("preStop", {}).get("sleep", {"seconds": 0})
        assert hook["seconds"] == seconds


def test_its_key_is_in_a_secret_that_is_there_or_of_the_chart() -> None:
    theirs, ours = render(KEYS, ON), render(KEYS, at("mcp", {"enabled": True, "key": "taugate_abc"}))
    assert secrets(pod(theirs)["containers"][0]) == {"TAUGATE_KEY": ("agents-key", "key")}
    assert theirs.of("Secret") == []
    assert secrets(pod(ours)["containers"][0]) == {"TAUGATE_KEY": ("shop-taugate-mcp", "key")}
    assert ours.one("Secret", "-mcp")["stringData"] == {"key": "taugate_abc"}
    assert "taugate_abc" not in ours.texts["mcp/deployment.yaml"]
    other = render(KEYS, at("mcp", {"enabled": True, "key": "taugate_def"}))
    made = [each.one("Deployment", "-mcp")["spec"]["template"]["metadata"]["annotations"] for each in (ours, other)]
    assert made[0] != made[1], "a pod reads its key when it starts"
    with pytest.raises(helm_python.HelmValuesError, match="key"):
        render(KEYS, at("mcp", {"enabled": True, "key": "two words"}))


def test_it_needs_no_key_where_nobody_does() -> None:
    rendered = render(at("settings.allow_unauthenticated", True), at("mcp.enabled", True))
    assert "env" not in pod(rendered)["containers"][0]


def test_it_reaches_the_service_and_nothing_else_and_the_service_lets_it_in() -> None:
    callers = [{"podSelector": {"matchLabels": {"app": "web"}}}]
    agents = [{"podSelector": {"matchLabels": {"app": "agent"}}}]
    values = (KEYS, ON, POLICY, at("networkPolicy.ingressFrom", callers), at("mcp.ingressFrom", agents))
    rendered = render(*values)
    policy = rendered.one("NetworkPolicy", "-mcp")["spec"]
    labels = rendered.one("Deployment", "-mcp")["spec"]["template"]["metadata"]["labels"]
    service = rendered.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"][0]["from"] == agents
    dns, search = policy["egress"]
    assert [port["port"] for port in dns["ports"]] == [53, 53]
    assert search["to"][0]["podSelector"]["matchLabels"].items() <= service.items()
    *_, own = rendered.one("NetworkPolicy")["spec"]["ingress"][0]["from"]
    assert own["podSelector"]["matchLabels"].items() <= labels.items()
    without = render(KEYS, POLICY, at("networkPolicy.ingressFrom", callers)).one("NetworkPolicy")["spec"]["ingress"]
    assert len(without[0]["from"]) == len(rendered.one("NetworkPolicy")["spec"]["ingress"][0]["from"]) - 1


def test_everything_at_once_has_it() -> None:
    assert render(VARIANTS["all"]).one("Deployment", "-mcp")["spec"]["replicas"] == 2
