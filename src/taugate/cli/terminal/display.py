"""Progress of a long command: one line redrawn on a terminal, or a new line every ten seconds elsewhere."""

import os
import shutil
import sys
import threading
import time
from types import TracebackType

from tqdm import tqdm

from taugate.calibration.progress import Job, Task
from taugate.cli.terminal.output import say

_REDRAW_SECONDS = 0.2
_MIN_SHOWN_SECONDS = 0.5  # the line of a shorter task would only flicker
_SILENCE_SECONDS = 10.0  # longest pause between two lines of a log
_CLEAR_LINE = "\r\x1b[K"


class ProgressDisplay:
    """Shows a job on stderr while its `with` block runs: its lines, and below them its current task.

    A separate thread redraws it, so that the elapsed time advances even during one long computation.
    """

    def __init__(self) -> None:
        self._job = Job(self._report)
        self._terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._writing = threading.Lock()
        self._last_line = time.perf_counter()
        self._drawn = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def __enter__(self) -> Job:
        self._thread.start()
        return self._job

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        with self._writing:
            self._clear()

    def _report(self, line: str) -> None:
        """Write a line above the progress line."""
        with self._writing:
            self._clear()
            say(line)
            self._last_line = time.perf_counter()

    def _run(self) -> None:
        while not self._ended.wait(_REDRAW_SECONDS):
            task, now = self._job.current, time.perf_counter()
            with self._writing:
                if self._ended.is_set():
                    return
                if not self._terminal:
                    if now - self._last_line >= _SILENCE_SECONDS:
                        say(progress_line(task, now - task.began))
                        self._last_line = now
                elif now - task.began >= _MIN_SHOWN_SECONDS:
                    width = shutil.get_terminal_size().columns - 1
                    sys.stderr.write(_CLEAR_LINE + progress_bar(task, now - task.began, width))
                    sys.stderr.flush()
                    self._drawn = True
                else:
                    self._clear()

    def _clear(self) -> None:
        if self._drawn:
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()
            self._drawn = False


def progress_bar(task: Task, seconds: float, width: int) -> str:
    """Draw a task as one line for a terminal: a bar with rate and remaining time if its size is known.

    Args:
        task: The current task.
        seconds: Time since it began.
        width: Columns of the terminal.
    """
    if not task.total:
        count = f" {task.done:,}" if task.done else ""
        return f"{task.name}{count} … {tqdm.format_interval(seconds)}"[:width]
    bar: str = tqdm.format_meter(
        task.done, task.total, seconds, ncols=width, prefix=task.name, unit="", initial=task.cached
    )
    return bar


def progress_line(task: Task, seconds: float) -> str:
    """Write a task as one line of a log, such as "encoding documents: 3,200 of 57,638 (6 %), 41.2/s, 22:01 left".

    Args:
        task: The current task.
        seconds: Time since it began.
    """
    elapsed = tqdm.format_interval(seconds)
    if not task.total:
        count = f"{task.done:,} in " if task.done else ""
        return f"{task.name}: {count}{elapsed} so far"
    line = f"{task.name}: {task.done:,} of {task.total:,} ({task.done / task.total:.0%})".replace("%", " %")
    worked = task.done - task.cached
    if not worked or not seconds:
        return f"{line}, {elapsed} so far"
    rate = worked / seconds
    return f"{line}, {rate:.1f}/s, {tqdm.format_interval((task.total - task.done) / rate)} left"
