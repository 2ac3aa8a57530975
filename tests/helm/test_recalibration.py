"""CronJob and Job: their commands, data, permissions, and the promotion of their releases."""

import re
from typing import Any

import click
import pytest

from taugate.cli.main import load_command
from tests.helm.rendered import APP_VERSION, KEYS, VARIANTS, Values, at, merged, plain, render, secrets

URL = {"releases": {"url": "s3://bucket/team"}}
JOB = {"recalibration": {"job": {"enabled": True}, "data": {"url": "s3://bucket/data/faq"}}}
CRON = {"recalibration": {"cronJob": {"enabled": True}, "data": {"url": "s3://bucket/data/faq"}}}
PROMOTED = merged(at("recalibration.promotion.enabled", True), at("settings.reload_seconds", 60))
SIGNED = at("recalibration.signingKey", "signing")


def job(*parts: Values) -> dict[str, Any]:
    spec: dict[str, Any] = render(KEYS, JOB, *parts).job["spec"]
    return spec


def pod(*parts: Values) -> dict[str, Any]:
    spec: dict[str, Any] = job(*parts)["template"]["spec"]
    return spec


def arguments(*parts: Values) -> list[str]:
    (container,) = pod(*parts)["containers"]
    found: list[str] = container["args"]
    return found


@pytest.mark.parametrize("kind", ["CronJob", "Job"])
def test_no_calibration_by_default(kind: str) -> None:
    rendered = render(KEYS, at("recalibration.data.url", "s3://bucket/data/faq"))
    assert rendered.of(kind) == []
    assert [obj["metadata"]["name"] for obj in render(KEYS).of("ServiceAccount")] == ["shop-taugate"]


def test_cron_job_forbids_concurrency() -> None:
    spec = render(KEYS, CRON, at("recalibration.cronJob.spec.timeZone", "Europe/Vienna")).one("CronJob", "-calibrate")[
        "spec"
    ]
    assert spec["concurrencyPolicy"] == "Forbid"
    assert (spec["schedule"], spec["timeZone"], spec["failedJobsHistoryLimit"]) == ("0 3 * * 0", "Europe/Vienna", 3)
    assert spec["startingDeadlineSeconds"] == 3600
    assert spec["successfulJobsHistoryLimit"] == spec["failedJobsHistoryLimit"] == 3


def test_other_values_or_run_create_another_job() -> None:
    later, other = at("recalibration.job.run", "2026-12-01"), at("recalibration.job.arguments", ["release", "list"])
    names = [render(KEYS, JOB, more).job["metadata"]["name"] for more in ({}, later, other)]
    assert len(set(names)) == 3
    assert all(re.fullmatch("shop-taugate-calibrate-[0-9a-f]{8}", name) for name in names)
    assert render(KEYS, CRON).of("Job") == []


def test_disabled_job_keeps_its_resources() -> None:
    policy = at("networkPolicy.enabled", True)
    on = render(KEYS, JOB, policy)
    assert on.job["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    off = render(KEYS, JOB, policy, at("recalibration.job.enabled", False), revision=2)
    assert off.of("Job") == []
    for kind in ("ServiceAccount", "NetworkPolicy"):
        assert off.one(kind, "-calibration") == on.one(kind, "-calibration")


def test_cron_job_and_job_differ_in_command() -> None:
    more = at("recalibration.cronJob.arguments", ["--url", "http://shop-taugate-pods:8000"])
    rendered = render(VARIANTS["recalibrate"], more, PROMOTED)
    by_the_clock = rendered.one("CronJob", "-calibrate")["spec"]["jobTemplate"]["spec"]
    now = rendered.job["spec"]
    (clock,), (once,) = (
        spec["template"]["spec"].pop("initContainers", None) or spec["template"]["spec"].pop("containers")
        for spec in (by_the_clock, now)
    )
    assert now == {**by_the_clock, "ttlSecondsAfterFinished": 604_800}
    assert (clock.pop("name"), once.pop("name")) == ("recalibrate", "calibrate")
    again, first = clock.pop("args"), once.pop("args")
    assert clock == once
    assert again[:6] == ["recalibrate", first[1], "--releases", "/releases", "--url", "http://shop-taugate-pods:8000"]
    assert first[0] == "calibrate"
    assert "--url" not in first


def test_recalibration_ignores_calibrate_arguments() -> None:
    rendered = render(KEYS, CRON, at("recalibration.arguments", ["--max-loss", "0.02"]))
    spec = rendered.one("CronJob", "-calibrate")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert "--max-loss" not in container["args"]


def test_failed_job_is_not_retried() -> None:
    spec = job(at("recalibration.activeDeadlineSeconds", 600))
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (0, 600)
    failed, drained = spec["podFailurePolicy"]["rules"]
    assert failed == {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2, 3, 4, 5]}}
    assert drained == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert spec["template"]["spec"]["restartPolicy"] == "Never"


def test_job_is_bounded_in_time_and_disk() -> None:
    assert job()["activeDeadlineSeconds"] == 86_400
    assert "activeDeadlineSeconds" not in job(at("recalibration.activeDeadlineSeconds", None))
    emptied = {v["name"]: v["emptyDir"] for v in pod(at("recalibration.tmpSize", "9Gi"))["volumes"] if "emptyDir" in v}
    assert emptied == {"tmp": {"sizeLimit": "9Gi"}, "cache": {"sizeLimit": "9Gi"}}


def test_promotion_is_off_by_default() -> None:
    assert arguments() == ["calibrate", "s3://bucket/data/faq", "--releases", "/releases", "--no-promote"]


def test_promotion_always_or_by_rule() -> None:
    assert arguments(PROMOTED) == ["calibrate", "s3://bucket/data/faq", "--releases", "/releases"]
    limits = {"enabled": True, "maxAccuracyDrop": 0.02, "maxKeptIncrease": "auto"}
    expected = ["--max-accuracy-drop", "0.02", "--max-kept-increase", "auto"]
    assert arguments(merged(PROMOTED, at("recalibration.promotion", limits)))[-4:] == expected


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        (
            "accuracy not lower and kept share not higher by more than 0.05",
            ["--max-accuracy-drop", "auto", "--max-kept-increase", "0.05"],
        ),
        ("Accuracy  not lower by more than 1e-3 ", ["--max-accuracy-drop", "1e-3"]),
        ("kept share not higher", ["--max-kept-increase", "auto"]),
    ],
)
def test_deprecated_rule_becomes_limits(rule: str, options: list[str]) -> None:
    given = arguments(PROMOTED, at("recalibration.promotion.rule", rule))
    assert given[given.index("/releases") + 1 :] == options


def test_data_claim_is_read_only() -> None:
    claim = at("recalibration.data", {"url": None, "existingClaim": "labelled/faq"})
    assert arguments(claim)[1] == "/data/faq"
    assert arguments(merged(claim, at("recalibration.data.existingClaim", "labelled")))[1] == "/data"
    (container,) = pod(claim)["containers"]
    assert {"name": "data", "mountPath": "/data", "readOnly": True} in container["volumeMounts"]
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "labelled"}} in pod(claim)["volumes"]


def test_releases_are_written_to_service_volume() -> None:
    (container,) = pod()["containers"]
    assert {"name": "releases", "mountPath": "/releases"} in container["volumeMounts"]
    assert {"name": "releases", "persistentVolumeClaim": {"claimName": "shop-taugate-releases"}} in pod()["volumes"]


def test_promoted_releases_are_pushed_to_url() -> None:
    rendered = render(KEYS, JOB, URL, PROMOTED, SIGNED, at("recalibration.signingPassphrase", "signing"))
    claim = rendered.one("PersistentVolumeClaim", "-calibration")
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    spec = rendered.job["spec"]["template"]["spec"]
    (calibrate,), (push,) = spec["initContainers"], spec["containers"]
    assert calibrate["args"][:2] == ["calibrate", "s3://bucket/data/faq"]
    assert push["args"] == ["release", "push", "--releases", "/releases", "--to", "s3://bucket/team", "--promote"]
    assert {"name": "releases", "persistentVolumeClaim": {"claimName": "shop-taugate-calibration"}} in spec["volumes"]
    # Only what signs has the private key.
    assert "signing" in {mount["name"] for mount in calibrate["volumeMounts"]}
    assert "signing" not in {mount["name"] for mount in push["volumeMounts"]}
    assert secrets(calibrate) == {"TAUGATE_SIGNING_PASSPHRASE": ("signing", "passphrase")}
    assert secrets(push) == {}


def test_unpromoted_releases_are_not_pushed() -> None:
    assert "initContainers" not in pod(URL)
    assert arguments(URL)[-1] == "--no-promote"


def test_existing_work_volume_is_used() -> None:
    rendered = render(KEYS, JOB, URL, at("releases.volume.existingClaim", "work"))
    assert rendered.of("PersistentVolumeClaim") == []
    assert {"name": "releases", "persistentVolumeClaim": {"claimName": "work"}} in pod(
        URL, at("releases.volume.existingClaim", "work")
    )["volumes"]


def test_work_volume_requires_calibration_and_url() -> None:
    assert render(KEYS, URL).of("PersistentVolumeClaim") == []
    assert len(render(KEYS, JOB).of("PersistentVolumeClaim")) == 1


def test_job_runs_other_command() -> None:
    promote = ["release", "promote", "20260101T000000Z-0123456789ab", "--releases", "/releases"]
    assert arguments(at("recalibration.job.arguments", promote)) == promote
    assert "initContainers" not in pod(URL, PROMOTED, at("recalibration.job.arguments", promote))


def test_history_gets_name_of_job_and_of_its_run() -> None:
    (container,) = pod(at("recalibration.job.run", "Anna, 2026-12-01"))["containers"]
    assert plain(container)["TAUGATE_BY"] == "$(JOB_NAME) Anna, 2026-12-01"
    names = [item["name"] for item in container["env"]]
    assert names.index("JOB_NAME") < names.index("TAUGATE_BY"), "a variable may refer only to those before it"
    source = container["env"][names.index("JOB_NAME")]["valueFrom"]["fieldRef"]["fieldPath"]
    assert source == "metadata.labels['batch.kubernetes.io/job-name']"


def test_trial_reaches_all_pods_by_one_name() -> None:
    trial = at("recalibration.cronJob.arguments", ["--url", "http://shop-taugate-pods:8000"])
    rendered = render(KEYS, CRON, PROMOTED, trial)
    service = rendered.one("Service", "-pods")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == rendered.one("Service")["spec"]["selector"]
    assert service["spec"]["ports"][0]["port"] == rendered.container["ports"][0]["containerPort"]
    assert len(render(KEYS).of("Service")) == 1
    # Prometheus would otherwise see each pod twice.
    monitored = render(VARIANTS["all"]).one("ServiceMonitor")["spec"]["selector"]["matchLabels"]
    assert not monitored.items() <= service["metadata"]["labels"].items()


def test_pruning_is_a_cron_job_of_its_own() -> None:
    assert render(KEYS).of("CronJob") == []
    prune = {"schedule": "0 5 * * 6", "arguments": ["--keep", "20"], "timeZone": "Europe/Vienna"}
    for releases, claim in (({}, "shop-taugate-releases"), (URL, "shop-taugate-calibration")):
        rendered = render(KEYS, releases, at("recalibration.prune", prune), at("networkPolicy.enabled", True))
        spec = rendered.one("CronJob", "-prune")["spec"]
        assert (spec["schedule"], spec["timeZone"], spec["concurrencyPolicy"]) == (
            "0 5 * * 6",
            "Europe/Vienna",
            "Forbid",
        )
        pruning = spec["jobTemplate"]["spec"]["template"]["spec"]
        (container,) = pruning["containers"]
        assert container["args"] == ["release", "prune", "--releases", "/releases", "--keep", "20"]
        assert {"name": "releases", "persistentVolumeClaim": {"claimName": claim}} in pruning["volumes"]
        assert container["resources"]["requests"]["memory"] == "256Mi"  # it reads no data set
        assert rendered.one("NetworkPolicy", "-calibration")
        assert rendered.one("PersistentVolumeClaim", claim.removeprefix("shop-taugate"))


def test_jobs_have_affinity() -> None:
    term = {"weight": 1, "preference": {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["batch"]}]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert pod(at("recalibration.pod.affinity", affinity))["affinity"] == affinity
    both = pod(at("recalibration.pod.affinity", affinity), at("releases.volume.accessMode", "ReadWriteOnce"))[
        "affinity"
    ]
    assert both["nodeAffinity"] == affinity["nodeAffinity"]
    assert both["podAffinity"]


def test_calibration_has_own_account_and_storage() -> None:
    role = {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/writer"}
    store = {"AWS_ENDPOINT_URL": "http://minio:9000"}
    values = at("recalibration", {"serviceAccount": {"annotations": role}, "objectStorage": "writer", "env": store})
    rendered = render(KEYS, JOB, values)
    assert rendered.one("ServiceAccount", "-calibration")["metadata"]["annotations"] == role
    assert pod(values)["serviceAccountName"] == "shop-taugate-calibration"
    (container,) = pod(values)["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": "writer"}}]
    assert plain(container)["AWS_ENDPOINT_URL"] == "http://minio:9000"
    assert {"secretRef": {"name": "writer"}} not in rendered.container["envFrom"]
    shared = at("recalibration.serviceAccount", {"name": "ours"})
    assert pod(shared)["serviceAccountName"] == "ours"
    assert len(render(KEYS, JOB, shared).of("ServiceAccount")) == 1


def test_calibration_has_own_resources_and_cache() -> None:
    values = at(
        "recalibration",
        {
            "resources": {"limits": {"memory": "16Gi"}},
            "pod": {"nodeSelector": {"pool": "batch"}, "tolerations": [{"operator": "Exists"}]},
            "cache": {"existingClaim": "embeddings"},
            "env": {"HF_HUB_OFFLINE": "1"},
        },
    )
    spec = pod(values)
    (container,) = spec["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "2", "ephemeral-storage": "2Gi", "memory": "2Gi"},
        "limits": {"cpu": "2", "memory": "16Gi"},
    }
    assert (spec["nodeSelector"], spec["tolerations"]) == ({"pool": "batch"}, [{"operator": "Exists"}])
    assert {"name": "cache", "persistentVolumeClaim": {"claimName": "embeddings"}} in spec["volumes"]
    own = {"TAUGATE_BY": "$(JOB_NAME)", "TAUGATE_CACHE": "/cache", "HF_HOME": "/cache/huggingface"}
    assert plain(container) == {**own, "HF_HUB_OFFLINE": "1"}
    assert container["image"] == f"taugate/calibration:{APP_VERSION}"


@pytest.mark.parametrize("variant", ["recalibrate", "command", "object-storage", "cloud", "minio", "openshift", "all"])
def test_command_accepts_rendered_arguments(variant: str) -> None:
    rendered = render(VARIANTS[variant])
    jobs = [item["spec"] for item in rendered.of("Job")]
    jobs += [item["spec"]["jobTemplate"]["spec"] for item in rendered.of("CronJob")]
    assert jobs
    for job in jobs:
        pod = job["template"]["spec"]
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            name, *words = container["args"]
            command = load_command(name)
            if isinstance(command, click.Group):
                command, words = command.get_command(click.Context(command), words[0]), words[1:]
            assert command is not None
            assert command.make_context(name, words).params["releases"].name == "releases"
