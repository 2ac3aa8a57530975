"""Recalibration: a CronJob, a Job on demand, their data, and the promotion of their releases."""

from typing import Literal

from pydantic import Field

from helm.values.base import (
    Account,
    AsInKubernetes,
    Group,
    ImageName,
    Name,
    Quantity,
    Scheduled,
    SecretEntry,
    Variables,
    group,
    value,
)


class Data(Group):
    """The labelled data set: a folder with corpus.jsonl, queries.jsonl and qrels/, at a URL or in a claim."""

    url: str | None = value(None, "URL of that folder, such as s3://bucket/data/faq", pattern="^[a-z0-9]+://.+")
    existing_claim: Name | None = value(None, "CLAIM or CLAIM/FOLDER, mounted read-only")


class Promotion(Group):
    """Promotion of new releases by the calibration itself. Otherwise, run `taugate release promote` by hand."""

    enabled: bool = value(False, "false: the release is written for review")
    max_accuracy_drop: float | Literal["auto"] | None = value(
        None, "promote only if accuracy is shown to drop by at most this; `auto`: 0.01, or what the queries can show"
    )
    max_kept_increase: float | Literal["auto"] | None = value(
        None, "promote only if the share of results kept is shown to rise by at most this; `auto` as above"
    )
    rule: str | None = Field(default=None, description="the rule as a sentence", deprecated="use the two limits")


class CronJob(Group):
    """Recalibration on a schedule: `taugate recalibrate`, which does what changed documents or labels need."""

    enabled: bool = value(False, "off until you have a labelled data set that is kept up to date")
    schedule: str = value(
        "0 3 * * 0", "Sundays at three: labels change weekly, and the result is not urgent", min_length=9
    )
    arguments: list[str] = value(
        [],
        "further arguments of `taugate recalibrate`, such as [--url, 'http://taugate-pods:8000'] for a trial on the "
        "pods of the installation taugate; not --log, because the data set is mounted read-only",
    )
    spec: AsInKubernetes = value(
        {},
        "further fields of its spec, such as {timeZone: Europe/Vienna, suspend: true}; {startingDeadlineSeconds: 3600, "
        "successfulJobsHistoryLimit: 3, failedJobsHistoryLimit: 3}",
    )


class Job(Group):
    """One run of `taugate calibrate`, for the first release or new settings. Another one needs other values."""

    enabled: bool = value(False, "whether the chart has this Job")
    run: str = value("", "any text, such as a date and your name: a new one starts another run of the same values")
    arguments: list[str] = value(
        [], "another `taugate` command to run on the volume, such as [release, promote, ID, --releases, /releases]"
    )


class Cache(Group):
    """Exported encoders and embeddings (TAUGATE_CACHE). Without them, a run takes longer but has the same result."""

    existing_claim: Name | None = value(
        None, "an existing claim that keeps them between runs; null: they are deleted with the pod"
    )


class Prune(Group):
    """A CronJob that runs `taugate release prune`."""

    schedule: str = Field(description="such as 0 5 * * 6", min_length=9)
    arguments: list[str] = value([], "further arguments, such as [--keep, '20']")
    time_zone: str | None = value(None, "time zone of the schedule")
    suspend: bool = value(False, "true: the schedule starts nothing")


class Recalibration(Scheduled):
    """Recalibration (docs/calibration.md) by a CronJob or a Job, and pruning of releases; off by default."""

    cron_job: CronJob = group(CronJob())
    job: Job = group(Job())
    prune: Prune | None = value(
        None,
        "a CronJob for `taugate release prune`, such as {schedule: '0 5 * * 6', arguments: [--keep, '20']}; null: "
        "nothing removes old releases",
    )
    data: Data = group(Data())
    arguments: list[str] = value(
        [],
        "further arguments of the Job's `taugate calibrate`, such as [--max-loss, '0.02']; the CronJob uses the "
        "settings of the current release",
    )
    promotion: Promotion = group(Promotion())
    signing_key: SecretEntry | None = value(
        None,
        "SECRET or SECRET/ENTRY (entry `signing.key`) with the Ed25519 private key that signs releases, in PEM form",
    )
    signing_passphrase: SecretEntry | None = value(
        None, "SECRET or SECRET/ENTRY (entry `passphrase`) with the passphrase of that key"
    )
    image: ImageName = value(
        "taugate/calibration", "image with PyTorch; without tag or digest, of the chart's appVersion"
    )
    resources: AsInKubernetes = value(
        {},
        "requests and limits; {requests: {cpu: '2', memory: 2Gi}, limits: {cpu: '2', memory: 4Gi}}: calibrations "
        "of 503 and of 1,204 documents took at most 1.1 GB, for the export by PyTorch; 500,000 vectors of "
        "384 dimensions take 0.8 GB more; two processors encode about 500 texts/s (benchmarks/results/serving.md)",
    )
    cache: Cache = group(Cache())
    object_storage: Name | None = value(
        None, "the same for the calibration, which reads data and pushes releases: it also needs PutObject; see its env"
    )
    service_account: Account = value(
        Account(), "service account of the calibration, which may write to storage that the service only reads"
    )
    tmp_size: Quantity = value(
        "4Gi",
        "size of its /tmp, and of a cache without a claim: 500,000 documents of 2 kB, with their data set from a "
        "URL, take 2 GB; a pod that fills it "
        "is evicted",
    )
    active_deadline_seconds: int | None = value(
        86_400,
        "time limit of a run, including restarts: a day is eighty times what two processors need to encode 500,000 "
        "texts; null: none",
        ge=1,
    )
    env: Variables = value({}, "further environment variables of its containers, or {valueFrom: …}")
