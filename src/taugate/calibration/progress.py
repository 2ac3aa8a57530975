"""A job, which is one long command: the lines that it reports, its stages and their times, and its cancellation."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

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
