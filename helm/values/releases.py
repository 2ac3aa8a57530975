"""The place of releases: a volume that is mounted read-only, or object storage that every pod copies."""

from typing import Literal

from helm.values.base import Group, Name, Quantity, Texts, group, value


class ReleaseVolume(Group):
    """The volume with the releases directory; with releases.url, that in which calibration makes releases."""

    existing_claim: Name | None = value(None, "an existing claim; null: the chart creates one")
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce", "ReadOnlyMany"] = value(
        "ReadWriteMany",
        "access mode: replicas on several nodes read, calibration writes; ReadWriteOnce: all pods run on one node",
    )
    storage_class: Name | None = value(None, "null: the cluster's default")
    size: Quantity = value(
        "10Gi",
        "space for ten releases of 1 GB (500,000 documents, 384 dimensions, float32), the number that `taugate release "
        "prune` keeps",
    )
    annotations: Texts = value(
        {"helm.sh/resource-policy": "keep"},
        "annotations of the claim; `helm uninstall` keeps it, because its releases cannot be reproduced exactly",
    )


class Releases(Group):
    """The place of releases: either a volume or a URL."""

    url: str | None = value(
        None,
        "URL of the releases, such as s3://bucket/team; file:///… is also served from a copy",
        pattern="^[a-z0-9]+://.+",
    )
    volume: ReleaseVolume = group(ReleaseVolume())
    copy_size: Quantity = value(
        "4Gi",
        "size of the volume for a pod's copy of a URL, or of signed releases: the current release of 1 GB, the "
        "previous one, and the next",
    )
    object_storage: Name | None = value(
        None,
        "Secret whose entries become variables, such as AWS_ACCESS_KEY_ID, "
        "to read a URL (GetObject, ListBucket); "
        "null: "
        "the service account's role; another store than AWS: env.AWS_ENDPOINT_URL and env.AWS_REGION",
    )


class QueryLog(Group):
    """A log of queries and judgements, for `taugate drift` and `taugate traffic` (docs/drift.md)."""

    enabled: bool = value(
        False,
        "off: queries are users' data; the file /queries/queries.jsonl hashes them unless "
        "settings.query_log_texts is true",
    )
    existing_claim: Name | None = value(
        None, "an existing claim that keeps it, with a folder per pod; null: it is deleted with the pod"
    )
    size: Quantity = value("1Gi", "size of the pod's own volume; a pod that fills it is evicted")
