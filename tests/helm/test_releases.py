"""The place of releases: a volume that the service only reads, or a URL that it copies; and the query log."""

from typing import Any

import pytest

from tests.helm.rendered import KEYS, Values, at, merged, render

URL = {"releases": {"url": "s3://bucket/team"}}
CALIBRATES = {"recalibration": {"job": {"enabled": True}, "data": {"url": "s3://bucket/data/faq"}}}


def mounts(values: Values) -> dict[str, dict[str, Any]]:
    return {mount["name"]: mount for mount in render(KEYS, values).container["volumeMounts"]}


@pytest.mark.parametrize("values", [URL, at("releases.volume.existingClaim", "ours")])
def test_no_claim_without_own_volume(values: Values) -> None:
    assert render(KEYS, values).of("PersistentVolumeClaim") == []


def test_service_mounts_volume_read_only() -> None:
    assert mounts({})["releases"] == {"name": "releases", "mountPath": "/releases", "readOnly": True}
    claim = render(KEYS).one("PersistentVolumeClaim", "-releases")
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert claim["spec"] == {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "10Gi"}}}


def test_claim_uses_values() -> None:
    notes = {"helm.sh/resource-policy": None, "example.org/backup": "daily"}
    wanted = {"storageClass": "nfs", "size": "50Gi", "annotations": notes}
    claim = render(KEYS, at("releases.volume", wanted)).one("PersistentVolumeClaim", "-releases")
    assert claim["spec"]["storageClassName"] == "nfs"
    assert claim["spec"]["resources"]["requests"]["storage"] == "50Gi"
    assert claim["metadata"]["annotations"] == {"example.org/backup": "daily"}


def test_existing_claim_is_used() -> None:
    (volume,) = [
        v for v in render(KEYS, at("releases.volume.existingClaim", "ours")).pod["volumes"] if v["name"] == "releases"
    ]
    assert volume["persistentVolumeClaim"] == {"claimName": "ours"}


def test_read_only_claim_is_mounted_read_only() -> None:
    claim = {"existingClaim": "ours", "accessMode": "ReadOnlyMany"}
    volumes = {v["name"]: v for v in render(KEYS, at("releases.volume", claim)).pod["volumes"]}
    assert volumes["releases"]["persistentVolumeClaim"] == {"claimName": "ours", "readOnly": True}


def test_url_copy_has_own_volume() -> None:
    assert "cache" not in mounts({})
    values = merged(URL, at("releases.copySize", "9Gi"))
    assert mounts(values)["cache"] == {"name": "cache", "mountPath": "/cache"}
    assert "releases" not in mounts(values)
    assert {"name": "cache", "emptyDir": {"sizeLimit": "9Gi"}} in render(KEYS, values).pod["volumes"]


def test_object_storage_variables_are_set() -> None:
    storage = at("releases.objectStorage", "reader")
    reader = {"secretRef": {"name": "reader"}}
    assert reader not in render(KEYS, storage).container["envFrom"]  # of no use to a volume
    assert reader in render(KEYS, URL, storage).container["envFrom"]


def test_one_node_volume_adds_affinity() -> None:
    assert "affinity" not in render(KEYS).pod
    one_node = at("releases.volume", {"accessMode": "ReadWriteOnce"})
    rendered = render(KEYS, one_node, CALIBRATES)
    job = rendered.job["spec"]["template"]
    service = rendered.one("Deployment")["spec"]["template"]
    for pod in (job, service):
        (term,) = pod["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["topologyKey"] == "kubernetes.io/hostname"
        # Also its own labels: the first pod of all has to find a node.
        for other in (job, service):
            assert term["labelSelector"]["matchLabels"].items() <= other["metadata"]["labels"].items()


def test_one_node_merges_with_node_affinity() -> None:
    ours = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    affinity = render(KEYS, at("releases.volume.accessMode", "ReadWriteOnce"), {"affinity": ours}).pod["affinity"]
    assert set(affinity) == {"nodeAffinity", "podAffinity"}


def test_no_query_log_by_default() -> None:
    assert "queries" not in mounts({})
    assert "TAUGATE_QUERY_LOG" not in render(KEYS).environment


def test_query_log_in_pod_or_claim() -> None:
    log = at("queryLog", {"enabled": True, "size": "2Gi"})
    assert {"name": "queries", "emptyDir": {"sizeLimit": "2Gi"}} in render(KEYS, log).pod["volumes"]
    assert "subPathExpr" not in mounts(log)["queries"]
    kept = merged(log, at("queryLog.existingClaim", "queries"))
    assert mounts(kept)["queries"]["subPathExpr"] == "$(POD_NAME)"
    assert any(variable["name"] == "POD_NAME" for variable in render(KEYS, kept).container["env"])
