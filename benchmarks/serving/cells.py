"""One cell of a table: a load on a server, with what it cost the server. And what a row says of its rounds."""

import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.serving import load
from benchmarks.serving.load import LoadJob
from benchmarks.serving.sample import LoadSample
from benchmarks.serving.servers import Server

_HITS = 'taugate_cache_requests_total{outcome="hit"}'


@dataclass(frozen=True)
class LoadCell:
    """One measured load: the sample of its clients, and what the server used.

    Attributes:
        cpu: Processor seconds of the server during the load.
        resident: Bytes after it.
        batch: Queries encoded together, mean, if the server reports it.
    """

    sample: LoadSample
    cpu: float
    resident: int
    batch: float | None

    @property
    def milliseconds_of_cpu(self) -> float:
        """Processor time a good reply."""
        return 1000 * self.cpu / max(self.sample.statuses.get(200, 0), 1)

    @property
    def generator_share(self) -> float:
        """Return the share of one processor that the load generator took."""
        return self.sample.own_cpu / self.sample.seconds


def measure(
    server: Server,
    requests: Sequence[bytes],
    job: LoadJob,
    processors: set[int] | None = None,
    *,
    refusals: bool = False,
) -> LoadCell:
    """Load a server.

    Raises:
        ValueError: If anything but 200 came back in a closed loop without `refusals`.
    """
    before, batches, hits = server.cpu_seconds, _batches(server), _metric(server, _HITS)
    sample = load.run(job, requests, processors)
    cpu, after = server.cpu_seconds - before, _batches(server)
    if set(sample.statuses) != {200} and job.clients and not refusals:
        raise ValueError(f"{server.service.name}: replies had {sample.statuses}")
    if server.service.environment.get("TAUGATE_CACHE_BYTES") == "0" and _metric(server, _HITS) != hits:
        raise ValueError(f"{server.service.name}: a cache answered, though every query was to be encoded")
    count = after[1] - batches[1]
    return LoadCell(sample, cpu, server.resident_bytes, (after[0] - batches[0]) / count if count else None)


def median(cells: Iterable[LoadCell], of: Callable[[LoadCell], float]) -> float:
    """Return the median of a figure over the rounds."""
    return statistics.median(of(cell) for cell in cells)


def ratio(above: Sequence[LoadCell], below: Sequence[LoadCell], of: Callable[[LoadCell], float]) -> float:
    """Median of the ratios, each within one round: what a machine does meanwhile, it does to both."""
    return statistics.median(of(a) / of(b) for a, b in zip(above, below, strict=True))


def rate(cell: LoadCell) -> float:
    """Good replies a second."""
    return cell.sample.rate


def latency(percentile: float) -> Callable[[LoadCell], float]:
    """Milliseconds of a percentile."""
    return lambda cell: cell.sample.milliseconds(percentile)


def _batches(server: Server) -> tuple[float, float]:
    """Read how many queries and batches were encoded so far."""
    name = "taugate_encode_batch_size"
    return _metric(server, f"{name}_sum"), _metric(server, f"{name}_count")


def _metric(server: Server, name: str) -> float:
    """Read a value on /metrics; 0 if the server has none."""
    if not server.service.name.startswith("taugate"):
        return 0.0
    found = re.search(rf"^{re.escape(name)} (\S+)$", server.get("/metrics").decode(), re.MULTILINE)
    return float(found.group(1)) if found else 0.0
