"""The trial of a new release as the shadow release of running services, evaluated by their metrics."""

import math
import socket
import time
import urllib.request
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit, urlunsplit

from prometheus_client.parser import text_string_to_metric_families

from taugate.calibration.progress import Job
from taugate.errors import InputError
from taugate.evidence.rules import WIDEST_MARGIN
from taugate.registry import promotion
from taugate.release.verify import TrustedKeys
from taugate.storage.http_client import is_on_loopback

DEFAULT_QUERIES, DEFAULT_SECONDS = 200, 600.0
_MIN_QUERIES = 20
_SCRAPE_SECONDS = 10.0
_PAUSE_SECONDS = 1.0
_PREFIX = "taugate_shadow_"
_REFUSED = {401, 403}
_MAX_FAILED = 0.01  # share of the queries; some fail through no fault of the release, as for a filter on a new field


@dataclass(frozen=True)
class TrialSettings:
    """Services and duration of a trial."""

    # URLs of the services, such as http://127.0.0.1:8000; all read the releases directory. A host with several
    # addresses stands for a service at each of them. Empty for no trial.
    urls: tuple[str, ...] = ()
    queries: int = DEFAULT_QUERIES  # number of queries that the services have to compare in total
    seconds: float = DEFAULT_SECONDS
    key: str | None = None  # API key with the scope metrics, None if the services need none

    def __post_init__(self) -> None:
        for url in self.urls:
            if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).netloc:
                raise InputError(f"--url {url}: not the address of a service; give one such as http://127.0.0.1:8000")
        if self.queries < _MIN_QUERIES:
            raise InputError(f"--shadow {self.queries}: too few queries for a trial; give {_MIN_QUERIES} or more")
        if not 0 < self.seconds < math.inf:
            raise InputError(f"--shadow-seconds {self.seconds:g}: give a number of seconds above 0")


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial."""

    compared: int
    failed: int
    changed: int
    empty_before: int
    empty_now: int
    overlap: float | None  # mean share of the top-K that both releases return; None if no query was compared
    seconds: float
    wanted: int
    silent: tuple[str, ...] = ()

    @property
    def objection(self) -> str | None:
        """Why the release should not be promoted, as a sentence without its full stop; None if nothing is wrong."""
        if self.compared + self.failed < self.wanted and self.silent:
            return (
                f"in {self.seconds:.0f} s {' and '.join(self.silent)} did not respond, and the release was tried on "
                f"{self.compared:,} of {self.wanted:,} queries; check the address, and start the service"
            )
        if self.compared + self.failed < self.wanted:
            return (
                f"in {self.seconds:.0f} s the services tried it on {self.compared:,} of {self.wanted:,} queries; check "
                "that they read this releases directory, and that TAUGATE_SHADOW_SHARE is above 0 and "
                "TAUGATE_RELOAD_SECONDS is set, or give a larger shadow-seconds"
            )
        if self.failed > _MAX_FAILED * (self.compared + self.failed):
            return f"it failed to answer {self.failed:,} of {self.compared + self.failed:,} live queries"
        increase = (self.empty_now - self.empty_before) / self.compared
        if increase > WIDEST_MARGIN:
            return (
                f"on live traffic it leaves {self.empty_now:,} of {self.compared:,} queries without a result, the "
                f"current release {self.empty_before:,}"
            )
        return None


def try_release(
    releases: Path, name: str, settings: TrialSettings, trusted: TrustedKeys | None, job: Job
) -> TrialResult:
    """Have running services try a release beside the current one until enough queries are compared.

    The pointer `shadow` names the release during the trial; the caller removes the pointer afterwards.

    Args:
        job: Reports the start, and each service that does not respond.
    """
    promotion.shadow(releases, name, trusted)
    addresses = _addresses(settings.urls)
    services = f"{len(addresses)} service" + ("s" if len(addresses) > 1 else "")
    job.report(f"trying {name} on live traffic: {settings.queries:,} queries of {services}")
    ask_to_reload(settings)
    began = time.monotonic()
    counted: dict[str, dict[str, float]] = {}
    silent: set[str] = set()
    while True:
        addresses = _addresses(settings.urls)  # again each time, because pods come and go
        for url in addresses:
            try:
                counted[url] = _counts(_get(f"{url.rstrip('/')}/metrics", settings.key), name)
            except (OSError, ValueError, HTTPException) as error:  # the service may be restarting
                if isinstance(error, HTTPError) and error.code in _REFUSED:
                    raise InputError(
                        f"{url}/metrics: {error.code} {error.reason}; put an API key with the scope metrics into "
                        "TAUGATE_KEY"
                    ) from error
                if url not in silent:
                    silent.add(url)
                    job.report(f"warning: {url}/metrics: {str(error).strip()}; trying again")
        seconds = time.monotonic() - began
        result = _sum(counted, seconds, settings, tuple(url for url in addresses if url not in counted))
        if result.compared + result.failed >= settings.queries or seconds >= settings.seconds:
            return result
        time.sleep(_PAUSE_SECONDS)


def ask_to_reload(settings: TrialSettings) -> None:
    """Ask the services to read `current` and `shadow` now.

    Without a key that permits this, a service follows by itself if TAUGATE_RELOAD_SECONDS is set.
    """
    for url in _addresses(settings.urls):
        with suppress(OSError, HTTPException):
            _get(f"{url.rstrip('/')}/admin/reload", settings.key, method="POST")


def _addresses(urls: Iterable[str]) -> list[str]:
    """Return a URL for each address of the hosts: the name of a headless Service is that of all of its pods."""
    services: list[str] = []
    for url in urls:
        parts = urlsplit(url)
        addresses = [] if parts.scheme == "https" or is_on_loopback(url) else _resolve(str(parts.hostname))
        port = "" if parts.port is None else f":{parts.port}"
        hosts = [f"[{address}]" if ":" in address else address for address in addresses]
        services += [urlunsplit(parts._replace(netloc=host + port)) for host in hosts] if len(hosts) > 1 else [url]
    return services


def _resolve(host: str) -> list[str]:
    """Return the addresses of a host, of one family, in which each of its machines has one; empty if there are none."""
    try:
        answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return sorted({str(address[0]) for family, *_, address in answers if family == answers[0][0]})


def _get(url: str, key: str | None, method: str = "GET") -> str:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    request = urllib.request.Request(url, headers=headers, method=method)  # noqa: S310 (TrialSettings checks the scheme)
    handlers = [urllib.request.ProxyHandler({})] if is_on_loopback(url) else []
    with urllib.request.build_opener(*handlers).open(request, timeout=_SCRAPE_SECONDS) as reply:
        return str(reply.read().decode())


def _counts(metrics: str, name: str) -> dict[str, float]:
    """Read a service's counts for the shadow release `name`, by metric and label; empty if it tries another release."""
    counts: dict[str, float] = {}
    tried = False
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            labels = sample.labels
            if sample.name == f"{_PREFIX}release_info":
                tried |= labels.get("release") == name and sample.value == 1
            elif sample.name.startswith(_PREFIX) and "le" not in labels:
                label = labels.get("outcome") or labels.get("side")
                counts[sample.name.removeprefix(_PREFIX) + (f" {label}" if label else "")] = sample.value
    return counts if tried else {}


def _sum(
    counted: Mapping[str, dict[str, float]], seconds: float, settings: TrialSettings, silent: tuple[str, ...]
) -> TrialResult:
    """Add up the counts of the services, by URL, without those that never responded."""

    def total(name: str) -> float:
        return sum(counts.get(name, 0.0) for counts in counted.values())

    compared = int(total("overlap_count"))
    return TrialResult(
        compared=compared,
        failed=int(total("queries_total failed")),
        changed=int(total("changed_responses_total")),
        empty_before=int(total("empty_responses_total current")),
        empty_now=int(total("empty_responses_total shadow")),
        overlap=total("overlap_sum") / compared if compared else None,
        seconds=seconds,
        wanted=settings.queries,
        silent=silent,
    )
