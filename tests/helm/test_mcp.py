"""The MCP server: absent by default, else with its key, its host names and its network access."""

from taugate_mcp.command import parser
from taugate_mcp.transports import GRACE_SECONDS
from tests.helm.rendered import KEYS, VARIANTS, Rendered, at, merged, render, secrets

ON = at("mcp", {"enabled": True, "keySecret": "agents-key"})
POLICY = at("networkPolicy.enabled", True)


def pod(rendered: Rendered) -> dict:
    return rendered.one("Deployment", "-mcp")["spec"]["template"]["spec"]


def test_disabled_mcp_renders_nothing() -> None:
    off = merged(KEYS, POLICY, at("mcp", {"enabled": False, "keySecret": "k", "replicas": 3, "ingressFrom": [{}]}))
    assert [obj["metadata"]["name"] for obj in render(off).objects if "mcp" in obj["metadata"]["name"]] == []
    assert [path for path in render(KEYS).texts if path.startswith("mcp/")] == []


def test_mcp_uses_service_and_own_names() -> None:
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


def test_mcp_grace_period_covers_requests() -> None:
    for given, seconds in ((None, 5), (0, 0), (10, 10)):
        spec = pod(render(KEYS, ON, at("rollout.preStopSeconds", given)))
        assert spec["terminationGracePeriodSeconds"] >= seconds + GRACE_SECONDS + 5
        hook = spec["containers"][0].get("lifecycle", {}).get("preStop", {}).get("sleep", {"seconds": 0})
        assert hook["seconds"] == seconds


def test_mcp_key_is_from_secret() -> None:
    rendered = render(KEYS, ON)
    assert secrets(pod(rendered)["containers"][0]) == {"TAUGATE_KEY": ("agents-key", "key")}
    assert rendered.of("Secret") == []


def test_mcp_needs_no_key_without_keys() -> None:
    rendered = render(at("settings.allow_unauthenticated", True), at("mcp.enabled", True))
    assert "env" not in pod(rendered)["containers"][0]


def test_mcp_policy_allows_service_only() -> None:
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


def test_variant_all_contains_mcp() -> None:
    assert render(VARIANTS["all"]).one("Deployment", "-mcp")["spec"]["replicas"] == 2
