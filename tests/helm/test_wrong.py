"""Conflicting values are refused by one sentence with a remedy that works."""

import functools
from typing import Any

import helm_python
import pytest

from tests.helm.rendered import KEYS, VARIANTS, Values, at, merged, render

URL = {"releases": {"url": "s3://bucket/team"}}
CALIBRATES = {"recalibration": {"cronJob": {"enabled": True}, "data": {"url": "s3://bucket/faq"}}}
PROMOTES = merged(CALIBRATES, at("recalibration.promotion.enabled", True))
ENTRY = {"name": "shop", "sha256": "0" * 64, "scopes": ["search"]}
TRUSTED = at("trustedKeys.existingSecret", "trusted")

# The values, the reported problem, the reported remedy, and the values of the remedy; None if it removes values.
WRONG: dict[str, tuple[Values, str, str, Values | None]] = {
    "no keys": (
        at("keys.existingSecret", None),
        "no API keys",
        "settings.allow_unauthenticated=true",
        at("settings.allow_unauthenticated", True),
    ),
    "keys twice": (at("keys.entries", [ENTRY]), "both given", "keep the Secret", at("keys.existingSecret", None)),
    "a setting as a variable": (at("env", {"TAUGATE_MAX_K": "5"}), "env.TAUGATE_MAX_K", "settings.max_k", None),
    "a setting by both of its names": (
        at("settings", {"allow_unauthenticated": True, "allow_anyone": True}),
        "settings.allow_unauthenticated and its older name settings.allow_anyone are both given",
        "keep settings.allow_unauthenticated",
        at("settings.allow_anyone", None),
    ),
    "a token without an engine": (
        at("engine.tokenSecret", "milvus"),
        "engine.tokenSecret has no effect",
        "engine.url",
        at("engine.url", "postgresql://taugate@postgres/taugate"),
    ),
    "a key without the URL that it is sent to": (
        at("encoderEndpoint.keySecret", "models"),
        "encoderEndpoint.keySecret is sent to no other URL",
        "encoderEndpoint.url",
        at("encoderEndpoint.url", "https://models.example/v1"),
    ),
    "Milvus without its client": (
        at("engine.url", "http://milvus:19530"),
        "taugate/service has no client for it",
        "name that image in image.repository",
        at("image.repository", "registry.example.org/taugate/service-milvus"),
    ),
    "a batch over the queue": (
        at("settings.max_batch", 300),
        "settings.max_batch is over",
        "raise the limit",
        at("settings.queue_limit", 300),
    ),
    "a new volume that nobody writes": (
        at("releases.volume.accessMode", "ReadOnlyMany"),
        "cannot be written to",
        "releases.volume.existingClaim",
        at("releases.volume.existingClaim", "ours"),
    ),
    "calibration into what is read only": (
        merged(CALIBRATES, at("releases.volume", {"accessMode": "ReadOnlyMany", "existingClaim": "ours"})),
        "cannot write",
        "releases.volume.accessMode=ReadWriteMany",
        at("releases.volume.accessMode", "ReadWriteMany"),
    ),
    "two affinities": (
        merged(
            at("releases.volume.accessMode", "ReadWriteOnce"),
            at("affinity", {"podAffinity": {}, "nodeAffinity": {}}),
            at("affinity.podAffinity", {"preferredDuringSchedulingIgnoredDuringExecution": []}),
        ),
        "sets affinity.podAffinity itself",
        "remove yours",
        at("affinity.podAffinity", None),
    ),
    "two Redis": (
        at("redis", {"url": "redis://a:6379", "existingSecret": "redis"}),
        "exclude one another",
        "keep the existing Redis",
        at("redis.url", None),
    ),
    "Redis of its own beside another": (
        at("redis", {"url": "redis://a:6379", "enabled": True, "passwordSecret": "redis"}),
        "exclude one another",
        "the chart's own",
        at("redis.url", None),
    ),
    "Redis without a password": (
        at("redis.enabled", True),
        "needs a password",
        "redis.passwordSecret",
        at("redis.passwordSecret", "redis"),
    ),
    "more at least than at most": (
        merged(at("autoscaling.enabled", True), at("replicas", 9)),
        "over autoscaling.maxReplicas",
        "lower it",
        at("replicas", 3),
    ),
    "a share of nothing": (
        merged(at("autoscaling.enabled", True), at("resources.requests.cpu", None)),
        "resources.requests.cpu",
        "targetQueueDepth",
        at("autoscaling.targetQueueDepth", 16),
    ),
    "all processors of the node": (
        at("resources.limits.cpu", None),
        "all processors of its node",
        "settings.workers to both numbers",
        at("settings.workers", "1,encoder_threads=4"),
    ),
    "two sets of data": (
        merged(CALIBRATES, at("recalibration.data.existingClaim", "labelled")),
        "exclude one another",
        "keep one",
        at("recalibration.data.url", None),
    ),
    "no data for the CronJob": (
        at("recalibration.cronJob.enabled", True),
        "no data",
        "recalibration.data.url",
        at("recalibration.data.url", "s3://b/faq"),
    ),
    "no data for the Job": (
        at("recalibration.job.enabled", True),
        "no data",
        "recalibration.data.existingClaim",
        at("recalibration.data.existingClaim", "labelled"),
    ),
    "a trial without a promotion": (
        merged(CALIBRATES, at("recalibration.cronJob.arguments", ["--url", "http://shop-taugate-pods:8000"])),
        "a trial before a promotion, while promotion is off",
        "recalibration.promotion.enabled=true",
        merged(at("recalibration.promotion.enabled", True), at("settings.reload_seconds", 60)),
    ),
    "a trial on pods that read a bucket": (
        merged(PROMOTES, URL, at("recalibration.cronJob.arguments", ["--url", "http://shop-taugate-pods:8000"])),
        "do not read the directory of the job",
        "remove --url",
        merged(at("recalibration.cronJob.arguments", []), at("settings.reload_seconds", 60)),
    ),
    "a route from nowhere": (
        at("httpRoute.hostnames", ["search.example.com"]),
        "belongs to no Gateway",
        "httpRoute.parentRefs",
        at("httpRoute.parentRefs", [{"name": "public"}]),
    ),
    "a rule that decides nothing": (
        at("recalibration.promotion.rule", "accuracy not lower"),
        "has no effect while promotion is off",
        "recalibration.promotion.enabled=true",
        at("recalibration.promotion.enabled", True),
    ),
    "a rule without limits in its place": (
        at("recalibration.promotion", {"enabled": True, "rule": "NDCG not lower"}),
        "is no longer read",
        "maxAccuracyDrop and maxKeptIncrease",
        at("recalibration.promotion", {"rule": None, "maxAccuracyDrop": 0.01}),
    ),
    "a rule in both forms": (
        at("recalibration.promotion", {"enabled": False, "rule": "accuracy not lower", "maxAccuracyDrop": 0.01}),
        "is replaced by maxAccuracyDrop and maxKeptIncrease",
        "leave it out",
        at("recalibration.promotion", {"enabled": True, "rule": None}),
    ),
    "a promotion that nobody sees": (
        PROMOTES,
        "do not check for a new release",
        "settings.reload_seconds=60",
        at("settings.reload_seconds", 60),
    ),
    "a promotion of what nobody trusts": (
        merged(PROMOTES, TRUSTED, at("settings.reload_seconds", 0.5)),
        "signs none",
        "recalibration.signingKey",
        at("recalibration.signingKey", "signing"),
    ),
    "agents without a key": (
        at("mcp.enabled", True),
        "mcp.enabled needs an API key",
        "mcp.keySecret",
        at("mcp.keySecret", "agents-key"),
    ),
    "scraping without a key": (
        at("metrics.serviceMonitor.enabled", True),
        "would be refused",
        "metrics.serviceMonitor.key",
        at("metrics.serviceMonitor.key", "metrics-key"),
    ),
}


def refusal(*parts: Values) -> str:
    with pytest.raises(helm_python.HelmRenderError) as refused:
        render(*parts)
    return str(refused.value)


@functools.cache
def said_of(name: str) -> str:
    return refusal(KEYS, WRONG[name][0])


@pytest.mark.parametrize("name", WRONG)
def test_conflicting_values_are_refused_with_remedy(name: str) -> None:
    values, wrong, remedy, done = WRONG[name]
    said = said_of(name)
    assert "): taugate: " in said
    assert wrong in said
    assert remedy in said
    assert "\n" not in said
    assert render(KEYS, *([] if done is None else [values, done])).objects


def test_missing_keys_are_reported_first() -> None:
    assert "there are no API keys" in refusal()


def test_every_refusal_is_tested() -> None:
    """Each line of the templates `_wrong_*` that is no template action is a message."""
    from tests.helm.rendered import CHART

    lines = [line for path in (CHART / "templates").glob("_wrong_*") for line in path.read_text("utf-8").splitlines()]
    messages = [line for line in lines if line and not line.startswith("{{-") and not line.startswith("{{/*")]
    said = {said_of(name).split("taugate: ", 1)[1] for name in WRONG}
    assert len(messages) == len(said)


@pytest.mark.parametrize("name", VARIANTS)
def test_no_variant_is_refused(name: str) -> None:
    rendered: Any = render(VARIANTS[name])
    assert "validate.yaml" not in rendered.texts
