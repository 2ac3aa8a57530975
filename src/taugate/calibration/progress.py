"""What a calibration tells people: progress, and numbers in the same form in the terminal and on every page.

Not with the charts: these need markupsafe, and the commands that promote and compare releases do without it.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from taugate.policy.names import NO_CUT
from taugate.release.evidence import Estimate, Interval, Shift
from taugate.release.manifest import ReleaseManifest

NOTHING = "–"


def fixed(value: float | None, digits: int = 4) -> str:
    """Format `value` with `digits` after the point; a dash for None, and −∞ for the τ that drops nothing."""
    return NOTHING if value is None else "−∞" if value == NO_CUT else f"{value:z.{digits}f}"


def signed(value: float, digits: int = 4) -> str:
    """Format a difference with its sign, unless it rounds to 0."""
    text = f"{value:+z.{digits}f}"
    return text.removeprefix("+") if float(text) == 0 else text


def percent(value: float | None, digits: int = 1) -> str:
    """Format a share in 0…1 as a percentage with a non-breaking space; a dash for None."""
    return NOTHING if value is None else f"{100 * value:z.{digits}f}\u00a0%"


def count(value: int | None) -> str:
    """Format a whole number with commas; a dash for None."""
    return NOTHING if value is None else f"{value:,}"


def brief(value: int) -> str:
    """Format a whole number for a narrow column, in thousands above 9,999."""
    return count(value) if value < 10_000 else f"{value / 1000:.0f}k"


def limits(value: Interval, digits: int = 4) -> str:
    """Format the limits of an interval in brackets."""
    return f"({fixed(value.lower, digits)}–{fixed(value.upper, digits)})"


def alone(value: float | None) -> tuple[str, str]:
    """Format a number as the cell of a table that has no interval beside it."""
    return fixed(value), ""


def estimate(value: Interval) -> tuple[str, str]:
    """Format an estimate and its interval, with that by document if it has one, as the cell of a table."""
    by_document = value.by_document if isinstance(value, Estimate) else None
    return fixed(value.mean), limits(value) + ("" if by_document is None else f" by document {limits(by_document)}")


def shift(value: Shift | None) -> tuple[str, str]:
    """Format a detected shift with its effect size as the cell of a table."""
    return alone(None) if value is None else (fixed(abs(value.points)), f"({fixed(abs(value.effect), 2)})")


METRICS = {
    "accuracy": "accuracy@{k}",
    "accuracy_at_tau": "accuracy@{k} at τ",
    "ndcg": "NDCG@{k}",
    "ndcg_at_tau": "NDCG@{k} at τ",
    "coe": "COE",
    "roe": "ROE",
}
PARTS = {"calibration": "calibration queries", "heldout": "held-out queries"}


def metrics_line(manifest: ReleaseManifest) -> str:
    """Return the measures of the papers on one line, of held-out queries if any are, with their 95 % intervals."""
    policy, metrics = manifest.policy, [*manifest.metrics.values()][-1]
    measured = [
        f"accuracy@{policy.k} {_share(metrics.accuracy)}",
        f"NDCG@{policy.k} {metrics.ndcg.mean:z.3f} {limits(metrics.ndcg, 3)}",
    ]
    if policy.tau is not None:
        measured.append(f"τ{'' if policy.psi is None else f'(ψ = {policy.psi})'} {fixed(policy.tau, 3)}")
    measured.append(f"COE {_share(metrics.coe)}")
    if metrics.roe is not None:
        measured.append(f"ROE {_share(metrics.roe)}")
    return ", ".join(measured)


def _share(value: Interval) -> str:
    return f"{percent(value.mean)} ({100 * value.lower:z.1f}–{100 * value.upper:z.1f})"


# What the stages do while they run, and what they have done; stages that have done the same are one step.
_MEASURED = "Measured all queries and chose the threshold"
_STAGES = {
    "load": ("loading the current release", "Loaded the current release"),
    "traffic": ("reading judged traffic", "Read judged traffic"),
    "read": ("reading the data set", "Read the data set"),
    "export": ("preparing the encoder", "Prepared the encoder"),
    "encode": ("encoding", "Encoded the data set"),
    "upload": ("uploading documents", "Uploaded the documents"),
    "adapt": ("learning from pairs", "Learned from pairs"),
    "admit": ("judging on unseen queries", "Judged on unseen queries"),
    "measure": ("measuring what changed in the encoder", "Measured what changed in the encoder"),
    "gate": ("trying cheaper ways to search", "Tried cheaper ways to search"),
    "rerank": ("reranking candidates", "Reranked candidates"),
    "index": ("building the index", "Built the index"),
    "search": ("searching all queries", _MEASURED),
    "model": ("estimating relevance", _MEASURED),
    "abstention": ("looking for queries to refuse", _MEASURED),
    "labels": ("estimating from few labels", _MEASURED),
    "query set": ("measuring the query set", _MEASURED),
    "check": ("checking the threshold", "Checked the threshold"),
    "threshold": ("choosing the threshold", _MEASURED),
    "write": ("writing the report and the release", "Wrote the release"),
    "shadow": ("trying the release on live traffic", "Tried the release on live traffic"),
    "promote": ("promoting the release", ""),  # the result says whether that happened
}


class JobCancelled(BaseException):
    """Ends a cancelled job; like KeyboardInterrupt, it is no error that the job's work may handle."""


@dataclass
class Task:
    """A task in progress, for a progress display."""

    name: str
    total: int | None = None
    done: int = 0
    cached: int = 0  # finished units that took no time, because an earlier run had finished them
    began: float = field(default_factory=time.perf_counter)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def advance(self, units: int = 1) -> None:
        """Count finished units."""
        if self.cancelled.is_set():
            raise JobCancelled
        self.done += units

    def skip(self, units: int) -> None:
        """Count units that an earlier run had finished."""
        self.cached += units
        self.done += units


class Job:
    """Everything that long work tells its caller, and the caller's way to stop it.

    Attributes:
        command: The command line that the job runs, for the report; empty if no command began it.
        confirm: Reports what would be sent to another machine; raises InputError if the user does not want that.
        stage_ended: Is called with the name of a stage, and seconds spent in it, whenever some are added.
        seconds: Wall-clock seconds by stage.
    """

    def __init__(self, report: Callable[[str], None] = lambda line: None, command: str = "") -> None:
        """Begin a job, which is silent unless `report` prints lines."""
        self._began = time.perf_counter()
        self._cancelled = threading.Event()
        self._tasks = [Task("working")]
        self.report, self.command = report, command
        self.confirm: Callable[[str], None] = report
        self.stage_ended: Callable[[str, float], None] = lambda name, seconds: None
        self.seconds: dict[str, float] = {}
        self._done: dict[str, str] = {}

    def cancel(self) -> None:
        """Stop the job as soon as it begins or advances a task, which raises JobCancelled; callable in any thread."""
        self._cancelled.set()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time spent inside a `with` block to the stage `name`."""
        self.add(name, 0.0)  # so that the previous step has ended
        began = time.perf_counter()
        try:
            with self.task(_STAGES[name][0] if name in _STAGES else name):
                yield
        finally:
            self.add(name, time.perf_counter() - began)

    @contextmanager
    def task(self, name: str, total: int | None = None) -> Iterator[Task]:
        """Make a task the current one inside a `with` block, which advances it."""
        task = Task(name, total, cancelled=self._cancelled)
        task.advance(0)
        self._tasks.append(task)
        try:
            yield task
        finally:
            self._tasks.remove(task)
            if len(self._tasks) == 1:  # time the work between two stages from here
                self._tasks[0].began = time.perf_counter()

    @property
    def current(self) -> Task:
        """The innermost task in progress; safe to read from another thread."""
        return self._tasks[-1]

    def add(self, name: str, seconds: float) -> None:
        """Add `seconds` measured elsewhere to the stage `name`."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self.stage_ended(name, seconds)

    def describe(self, name: str, done: str) -> None:
        """Set what the stage `name` has done, such as "Read 503 documents"; before the next stage ends."""
        self._done[name] = done

    def done(self, name: str) -> str | None:
        """Return what a stage has done, for people to read; None if the stage says nothing to them."""
        return self._done.get(name) or _STAGES.get(name, ("", ""))[1] or None

    @property
    def total(self) -> float:
        """Seconds since the job began."""
        return time.perf_counter() - self._began
