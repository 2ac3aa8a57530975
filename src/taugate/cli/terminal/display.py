"""Progress of a long command, on a terminal or in lines, and confirmation before texts leave this machine."""

import os
import re
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING

import click

from taugate.calibration.progress import Job, Task
from taugate.cli.terminal.output import is_error, is_warning, say, styled
from taugate.errors import InputError

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table


_REDRAWS_PER_SECOND = 5.0
_MIN_SHOWN_SECONDS = 0.5  # the line of a shorter task would only flicker
_SILENCE_SECONDS = 10.0  # longest pause between two lines of a log
_USER = re.compile(r"://[^/@]*@")  # in a URL, with a password or without
_BAR_COLUMNS = 12  # leaves 67 of 80 columns for the text


def confirm_sending(what: str) -> None:
    """Ask the user whether to send texts to an endpoint."""
    if not sys.stdin.isatty():
        raise InputError(f"nothing was sent: add --yes to send {what} to the endpoint")
    sys.stderr.write("Send them? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().casefold() not in {"y", "yes"}:
        raise InputError("nothing was sent, and nothing was changed")


class ProgressDisplay:
    """Shows a job on stderr while its `with` block runs: its lines, and below them its current task.

    Another thread shows the task, so that the elapsed time advances even during one long computation. Without Rich,
    which comes with the extra `calibration`, a terminal gets the lines of a log.
    """

    def __init__(
        self, *, steps: bool = False, verbose: bool = True, warnings: bool = True, confirmed: bool = False
    ) -> None:
        """Show a job.

        Args:
            steps: Whether to print a line for each step that has ended, with its time.
        """
        self._confirmed = confirmed
        self._pausing: Callable[[], AbstractContextManager[None]] = nullcontext
        self._job, self._verbose, self._warnings = Job(command=_command_line()), verbose, warnings
        self._show: Callable[[str], None] = say
        self._exits = ExitStack()
        self._stage, self._seconds = "", 0.0  # a stage of the current step, and the time of all its stages
        if steps:
            self._job.stage_ended = self._add_to_step
            self._exits.callback(self._end_step)

    def __enter__(self) -> Job:
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and find_spec("rich") is not None:
            self._draw()
        else:
            ended = threading.Event()
            threading.Thread(target=self._log, args=(ended,), name="progress", daemon=True).start()
            self._exits.callback(ended.set)
        return self._job

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._stage = ""  # the step has not ended
        self._exits.close()

    def _draw(self) -> None:
        """Redraw the line of the current task until the block ends; lines of the job appear above it."""
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        console = Console(stderr=True)
        self._report_with(lambda line: console.print(Text.from_ansi(styled(line))))
        live = Live(
            console=console,
            get_renderable=lambda: task_line(self._job.current),
            refresh_per_second=_REDRAWS_PER_SECOND,
            transient=True,
        )
        self._exits.enter_context(live)
        self._pausing = lambda: _stopped(live)

    def _log(self, ended: threading.Event) -> None:
        """Write a line about the current task whenever the job was silent for a while."""
        last_line = time.perf_counter()

        def report(line: str) -> None:
            nonlocal last_line
            say(line)
            last_line = time.perf_counter()

        self._report_with(report)
        while not ended.wait(max(last_line + _SILENCE_SECONDS - time.perf_counter(), 0)):
            if time.perf_counter() - last_line >= _SILENCE_SECONDS:
                report(progress_line(self._job.current, time.perf_counter() - self._job.current.began))

    def _report_with(self, show: Callable[[str], None]) -> None:
        def report(line: str) -> None:
            if self._verbose or (is_warning(line) if self._warnings else is_error(line)):
                show(line)

        self._show, self._job.report, self._job.confirm = show, report, self._confirm

    def _confirm(self, line: str) -> None:
        """Show what would be sent, and ask for confirmation."""
        self._show(line)
        if not self._confirmed:
            with self._pausing():
                confirm_sending("the texts")

    def _add_to_step(self, stage: str, seconds: float) -> None:
        if self._job.done(stage) != self._job.done(self._stage):
            self._end_step()
            self._stage, self._seconds = stage, 0.0
        self._seconds += seconds

    def _end_step(self) -> None:
        if (done := self._job.done(self._stage)) is not None:
            self._show(f"{done} in {self._seconds:.1f} s")
        self._stage = ""


@contextmanager
def _stopped(live: "Live") -> Iterator[None]:
    """Stop drawing, so that the user can type."""
    live.stop()
    try:
        yield
    finally:
        live.start()


def _command_line() -> str:
    """Return the command that is running, without passwords in URLs; empty outside of a command."""
    context = click.get_current_context(silent=True)
    words = None if context is None else context.find_object(list)
    return "" if words is None else shlex.join(["taugate", *(_USER.sub("://…@", word) for word in words)])


def task_line(task: Task) -> "Table":
    """Return the line of a task on a terminal: a bar and its progress; empty in its first moments."""
    from rich.progress_bar import ProgressBar
    from rich.table import Column, Table

    seconds = time.perf_counter() - task.began
    line = "" if seconds < _MIN_SHOWN_SECONDS else progress_line(task, seconds)
    row = Table.grid(Column(no_wrap=True), Column(no_wrap=True, overflow="ellipsis"), padding=(0, 1))
    row.add_row(ProgressBar(task.total, task.done, width=_BAR_COLUMNS) if line and task.total else "", line)
    return row


def progress_line(task: Task, seconds: float) -> str:
    """Write a task as one line, such as "encoding documents: 3,200 of 57,638 (6 %), 41.2/s, 22:01 left"."""
    if not task.total:
        count = f"{task.done:,} in " if task.done else ""
        return f"{task.name}: {count}{_clock(seconds)} so far"
    line = f"{task.name}: {task.done:,} of {task.total:,} ({task.done / task.total:.0%})".replace("%", " %")
    worked = task.done - task.cached
    if not worked or not seconds:
        return f"{line}, {_clock(seconds)} so far"
    rate = worked / seconds
    return f"{line}, {rate:.1f}/s, {_clock((task.total - task.done) / rate)} left"


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes:02}:{seconds:02}"
