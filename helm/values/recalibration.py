"""Recalibration: a CronJob, a Job on demand, what they calibrate on, and whether what they find goes into service."""

from helm.values.base import (
    Account,
    Group,
    Image,
    Name,
    Quantity,
    Resources,
    SecretEntry,
    Texts,
    Toleration,
    group,
    value,
)
from helm.values.releases import ObjectStorage


class Data(Group):
    """The labelled data set: a folder with corpus.jsonl, queries.jsonl and qrels/. A URL, or a claim."""

    url: str | None = value(None, "URL of that folder, such as s3://bucket/data/faq", pattern="^[a-z0-9]+://.+")
    existing_claim: Name | None = value(None, "a claim that holds it, mounted read-only")
    path: str = value("", "the folder in that claim", pattern="^([^/].*)?$")


class Promotion(Group):
    """Promotion of new releases by the calibration itself; without it, `taugate release promote` does it by hand."""

    enabled: bool = value(False, "false: the release is written and somebody looks at it first")
    rule: str | None = value(
        None, "promoted only where it holds, such as `accuracy not lower and kept share not higher`; null: always"
    )


class CronJob(Group):
    """Recalibration by the clock."""

    enabled: bool = value(False, "off until there is a labelled data set that is kept up to date")
    schedule: str = value("0 3 * * 0", "Sundays at three: labels change by the week, and nobody waits", min_length=9)
    time_zone: str | None = value(
        None, "time zone of the schedule, such as Europe/Vienna; null: that of the cluster's controller"
    )
    suspend: bool = value(False, "keeps it, and starts nothing; `kubectl create job --from` still does")
    starting_deadline_seconds: int = value(3600, "a run that could not start for an hour is left out", ge=10)
    history_limit: int = value(
        3, "finished Jobs of each outcome that are kept, Kubernetes' default of those done", ge=0
    )


class Job(Group):
    """One run with each `helm upgrade` for which it is enabled."""

    enabled: bool = value(False, "whether this install or upgrade starts one")
    arguments: list[str] = value(
        [], "what `taugate` is asked on the volume instead, such as [release, promote, ID, --releases, /releases]"
    )
    ttl_seconds_after_finished: int = value(604_800, "a week to read its log", ge=0)


class WorkVolume(Group):
    """Where calibration keeps its releases directory when releases.url is set: releases are made, then pushed."""

    existing_claim: Name | None = value(None, "a claim that is there; null: the chart makes one, for one node")
    storage_class: Name | None = value(None, "null: the cluster's default")
    size: Quantity = value("10Gi", "as releases.volume.size")


class Cache(Group):
    """Exported encoders and embeddings (TAUGATE_CACHE): without them a run takes longer, and finds the same."""

    existing_claim: Name | None = value(None, "a claim that keeps them between runs; null: they go with the pod")
    size: Quantity = value(
        "4Gi", "size of the volume that goes with the pod; 500,000 embeddings of 384 dimensions are 0.8 GB"
    )


class Recalibration(Group):
    """Recalibration (docs/calibration.md): CronJob and Job, both off."""

    cron_job: CronJob = group(CronJob())
    job: Job = group(Job())
    data: Data = group(Data())
    arguments: list[str] = value([], "further arguments of `taugate calibrate`, such as [--max-loss, '0.02']")
    promotion: Promotion = group(Promotion())
    signing_key: SecretEntry = value(
        SecretEntry(key="signing.key"), "a Secret with the Ed25519 private key that signs releases, in PEM form"
    )
    signing_passphrase: SecretEntry = value(SecretEntry(key="passphrase"), "a Secret with what unlocks that key")
    image: Image = value(
        Image(repository="taugate/calibration"), "image of the calibration, with PyTorch, which the service's lacks"
    )
    resources: Resources = value(
        Resources(requests={"cpu": "2", "memory": "2Gi"}, limits={"cpu": "2", "memory": "4Gi"}),
        "1.1 GB was the most in calibrations of 503 and of 1,204 documents, for the export by PyTorch; 500,000 vectors "
        "of 384 dimensions are 0.8 GB more; two processors encode about 500 texts/s (docs/benchmarks/serving.md)",
    )
    work_volume: WorkVolume = group(WorkVolume())
    cache: Cache = group(Cache())
    object_storage: ObjectStorage = value(
        ObjectStorage(), "how data is read and releases are pushed: PutObject as well"
    )
    service_account: Account = value(
        Account(), "service account of the calibration, which may write where the service only reads"
    )
    tmp_size: Quantity = value(
        "4Gi",
        "size of its /tmp: documents, and a data set at a URL beside them, are 2 GB for 500,000 documents of 2 kB; a "
        "pod that fills it is evicted",
    )
    active_deadline_seconds: int | None = value(
        86_400,
        "a run that takes longer is ended, all its beginnings counted: a day is eighty times what two processors need "
        "to encode 500,000 texts; null: never",
        ge=1,
    )
    env: Texts = value({}, "further variables of its containers")
    node_selector: Texts = value({}, "labels of nodes it may run on")
    tolerations: list[Toleration] = value([], "taints of nodes it may run on")
