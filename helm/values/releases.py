"""Where releases are: a volume that is mounted read-only, or object storage of which each pod keeps a copy."""

from typing import Literal

from helm.values.base import Group, Name, Quantity, Texts, group, value


class ReleaseVolume(Group):
    """The volume with the releases directory."""

    enabled: bool = value(True, "false where releases.url names object storage")
    existing_claim: Name | None = value(None, "a claim that is there; null: the chart makes one")
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce", "ReadOnlyMany"] = value(
        "ReadWriteMany", "what the claim has, or is to have: replicas on several nodes read, calibration writes"
    )
    one_node: bool = value(
        False, "whether all pods that mount it are kept on one node, as ReadWriteOnce needs; no node may fail then"
    )
    storage_class: Name | None = value(None, "null: the cluster's default")
    size: Quantity = value(
        "10Gi", "ten releases, as `taugate release prune` keeps, of 1 GB: float32 of 384 dimensions, 500,000 documents"
    )
    keep: bool = value(True, "whether the claim outlives `helm uninstall`: releases cannot be made again exactly")
    annotations: Texts = value({}, "annotations of the claim")


class ObjectStorage(Group):
    """How object storage is reached (docs/storage.md). Credentials are never part of a URL."""

    existing_secret: Name | None = value(
        None, "Secret whose entries become variables, such as AWS_ACCESS_KEY_ID; null: a role of the service account"
    )
    endpoint: str | None = value(None, "AWS_ENDPOINT_URL; null: that of AWS", pattern="^https?://")
    region: str | None = value(None, "AWS_REGION; null: what the store or the role says")


class Releases(Group):
    """Where releases are: a volume, or a URL. One of both."""

    url: str | None = value(
        None,
        "URL of the releases, such as s3://bucket/team; file:///… serves from a copy as well",
        pattern="^[a-z0-9]+://.+",
    )
    volume: ReleaseVolume = group(ReleaseVolume())
    copy_path: str = value(
        "/cache/releases",
        "where a pod keeps its copy of a URL, or of releases where keys are trusted, in the volume that is made for it",
        pattern="^/cache/.+",
    )
    copy_size: Quantity = value("4Gi", "size of that volume: the current release of 1 GB, the one before, and the next")
    object_storage: ObjectStorage = value(ObjectStorage(), "how the service reads a URL: GetObject and ListBucket")


class QueryLog(Group):
    """A log of queries for `taugate drift replay` (docs/drift.md)."""

    enabled: bool = value(False, "TAUGATE_QUERY_LOG: queries are data of users, hashed unless settings.query_log_texts")
    path: str = value("/queries/queries.jsonl", "the file, in a volume of its own", pattern="^/queries/.+")
    existing_claim: Name | None = value(
        None, "a claim that keeps it, with a folder for each pod; null: it goes with the pod"
    )
    size: Quantity = value("1Gi", "size of the volume that goes with the pod; a pod that fills it is evicted")
