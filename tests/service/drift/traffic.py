"""Queries like those of the sample's calibration, queries unlike them, and the drift state of a service."""

import json
from collections.abc import Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from taugate.drift.monitor import Monitor
from taugate.drift.observations import Observations, query_key
from taugate.drift.signals import theta_of
from taugate.registry.promotion import promote
from taugate.retrieval.query import Query
from taugate.retrieval.reader import Release
from taugate.service.pipeline.record import RANDOM_DOCUMENTS
from tests.service.access.files import entry
from tests.service_process import ServiceProcess, by_label, read_metrics

NO_ALARM = {"alarm": False, "signals": []}
SIGNAL = "topk_similarity"  # which sees foreign questions first


class FastDriftService(ServiceProcess):
    """A service that weighs what it has seen every half second; all else is as it is."""

    module = "tests.service.drift.fast_drift"


class Reloading(FastDriftService):
    """One that its client may have look for another release."""

    def __init__(self, releases: Path, **environment: str) -> None:
        self.releases = releases
        super().__init__(
            releases,
            TAUGATE_KEYS=json.dumps([entry("key", "tests", "admin", "feedback", "metrics", "search")]),
            **environment,
        )
        self.http.headers["Authorization"] = "Bearer key"

    def reload(self, release: str) -> str:
        """Promote a release and have the service look; what came of it."""
        promote(self.releases, release)
        answer = self.http.post("/admin/reload")
        assert answer.status_code == 200, answer.text
        return str(answer.json()["status"])


def foreign_queries(many: int, first: int = 0) -> list[str]:
    """Distinct questions that are one and the same to the tests' encoder, and like nothing in the sample.

    Most of their characters are in words that the encoder knows, so that none is refused as unreadable.
    """
    frequent, foreign_words = "the is for and in what to of", "ä ö ü ß ñ é è à ç ø å ł"
    return [f"{frequent} {foreign_words} {900_000 + number}" for number in range(first, first + many)]


def ordinary(sample: Path, many: int, first: int = 0) -> list[str]:
    """Distinct questions of the sample: to the encoder, spaces at the end are nothing."""
    lines = (sample / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    questions = [*dict.fromkeys(json.loads(line)["text"] for line in lines)]
    spaced = (question + " " * spaces for spaces in count() for question in questions)
    return [*islice(spaced, first, first + many)]


def send(service: ServiceProcess, texts: Sequence[str]) -> list[dict]:
    """Ask in full batches; what each reply says of drift."""
    replies = []
    for start in range(0, len(texts), 64):
        queries = [{"query": text, "include_text": False} for text in texts[start : start + 64]]
        answer = service.http.post("/search/batch", json={"queries": queries})
        assert answer.status_code == 200, answer.text
        replies += [reply["drift"] for reply in answer.json()["responses"]]
    return replies


def told(service: ServiceProcess) -> dict:
    """What a reply says of drift now; the question is always the same one."""
    return dict(ask(service, "permit")["drift"])


def ask(service: ServiceProcess, text: str) -> dict:
    """On a connection of its own, which any worker may take."""
    answer = _apart(service, "POST", "/search", json={"query": text})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def _apart(service: ServiceProcess, method: str, path: str, **asked: Any) -> httpx.Response:
    """What is answered on a connection of its own."""
    url, headers = f"http://127.0.0.1:{service.port}{path}", service.http.headers
    return httpx.request(method, url, headers=headers, timeout=30, **asked)


def metrics(service: ServiceProcess) -> dict[str, float]:
    """Every series of drift, by its name and labels as they are shown, without `taugate_drift_`."""
    shown = read_metrics(_apart(service, "GET", "/metrics").text).items()
    prefix = "taugate_drift_"
    return {name.removeprefix(prefix): value for name, value in shown if name.startswith(prefix)}


def by_signal(service: ServiceProcess, name: str) -> dict[str, float]:
    """One of the metrics that there is for each signal, such as `alarm`."""
    return by_label(metrics(service), name)


def count_logged(log: Path, release: str | None = None) -> int:
    """How many queries have been weighed, from the service's query log, which is written after that."""
    if not log.exists():
        return 0
    return sum(release is None or release in line for line in log.read_text(encoding="utf-8").splitlines())


def watching(release: Release) -> Monitor:
    """The alarms of a process that answers alone, at the default settings."""
    reference = release.reference
    return Monitor(reference, theta_of(reference, release.manifest.bootstrap.overlap_percentile))


def observed(release: Release, texts: Sequence[str]) -> Observations:
    """What a service sees when it answers these."""
    retriever, k = release.retriever, release.reference.top.shape[1]
    vectors = retriever.embed(retriever.tokens(texts), lambda *_: None)
    answers = retriever.answer([Query(text, k) for text in texts], vectors)
    random = np.random.default_rng(0).integers(0, len(retriever.index), size=(len(texts), RANDOM_DOCUMENTS))
    return Observations(
        np.arange(len(texts), dtype=np.float64),
        np.array([query_key(text) for text in texts], dtype=np.uint64),
        np.array([answer.uncut for answer in answers]),
        retriever.index.score(retriever.with_words(texts, vectors), random),
        np.array([answer.uncut_kept for answer in answers], dtype=np.float32),
        np.empty((len(texts), 0), dtype=np.float32),
    )


def queries_until_alarm(release: Release) -> int:
    """How many foreign questions raise the alarm in one process; one fewer do not."""
    changes = watching(release).update(observed(release, foreign_queries(1000)))
    (row,) = (change.row for change in changes if change.signal == SIGNAL)
    return row + 1
