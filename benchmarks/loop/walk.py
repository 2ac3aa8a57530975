"""Replace half of a corpus under load, wait for the alarm, and let one command bring it to an end."""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson

from benchmarks.checkout import environment
from benchmarks.loop.collections import ADDED, BEFORE, write_versions
from benchmarks.loop.plan import LoopPlan
from benchmarks.loop.users import Asked, Users
from benchmarks.markdown import Target, table, targets
from benchmarks.redis_server import redis_server
from benchmarks.serving.servers import free_port

HEADING = "From the alarm to its end"
_SERVICES, _SHADOW_SHARE, _RELOAD_SECONDS, _TRIED = 2, 0.5, 2.0, 200
_CALM_SECONDS = 20.0  # of the traffic before
_WATCHED = 1000  # questions after the promotion, in which no alarm may begin: five blocks of evidence
_PATIENCE, _PAUSE = 400.0, 0.5
_MAX_LOSS = "0.05"


@dataclass(frozen=True)
class _Walked:
    """One walk through the loop, as it was observed.

    Attributes:
        found: What `taugate recalibrate --json` printed.
        times: Seconds since the corpus was replaced, by event.
        alarms: Most that were on at once with the new release.
        asked: Questions of the users.
        began: When the corpus was replaced, seconds of time.monotonic().
    """

    found: dict[str, Any]
    times: dict[str, float]
    alarms: int
    asked: Asked
    began: float


def section(plan: LoopPlan) -> str:
    """Walk the loop once and report seconds, failures and what was found."""
    walked = _walk(plan)
    found, times, asked = walked.found, walked.times, walked.asked
    shadow, loss, changed = found["shadow"], found["loss"], found["changed"]
    rows = [[event, f"{seconds:.0f}"] for event, seconds in times.items()]
    start, alarm, end = (
        walked.began + times[name] for name in ("the corpus and the questions change", "alarm", "done")
    )
    calm = [f"{asked.milliseconds(p, 0, start):.0f}" for p in (50, 99)]
    busy = [f"{asked.milliseconds(p, alarm, end):.0f}" for p in (50, 99)]
    wanted = [
        Target("failed requests", len(asked.failed), at_most=0),
        Target(f"alarms with the new release, in {_WATCHED:,} questions", walked.alarms, at_most=0),
        Target("seconds from the alarm to its end", times["no alarm in any service"] - times["alarm"], at_most=300),
    ]
    return f"""\
A collection has {plan.documents:,} passages of {BEFORE} and {plan.labelled:,} labelled questions. {_SERVICES} services with one Redis answer {plan.rate:g} questions a
second. Then half of the passages are replaced by passages of {ADDED}, with their labelled questions, and half of the users ask about those. The
services still have the release of the old corpus. When a service raises an alarm, one command runs, and nothing else is done:

```text
taugate recalibrate DATA --releases DIR --url http://… --url http://… --shadow {_TRIED}
```

{table(["event", "seconds"], rows)}

The new release has {changed["added"]:,} documents more and {changed["removed"]:,} fewer. {100 * loss["mean"]:.1f} % of the held-out questions lose their answer to its threshold ({100 * loss["lower"]:.1f} % to
{100 * loss["upper"]:.1f} %). As a shadow it answered {shadow["compared"]:,} live questions: {shadow["changed"]:,} got other results. Without a result were {shadow["empty_before"]:,} with the old
release and {shadow["empty_now"]:,} with the new one.

{table(["", "p50 ms", "p99 ms"], [["before", *calm], ["while it recalibrates, on the same two cores", *busy]])}

{targets(wanted)}

{len(asked.at):,} questions were answered in all.{_failures(asked, start)}"""


def _failures(asked: Asked, start: float) -> str:
    """Say what failed, and whether the machine was too slow before anything had changed."""
    if not asked.failed:
        return ""
    before = sum(at < start for at in asked.failed_at)
    kinds = Counter(each[:3] for each in asked.failed)  # an HTTP status, or the beginning of an exception's name
    listed = ", ".join(f"{count:,} with {kind}" for kind, count in kinds.most_common())
    return f" {len(asked.failed):,} failed ({listed}), {before:,} of them before the corpus changed."


def _walk(plan: LoopPlan) -> _Walked:
    versions = write_versions(plan.data, plan.work, plan.documents, plan.labelled, plan.seed)
    releases, variables = plan.work / "releases", environment() | {"TAUGATE_CACHE": str(plan.work / "cache")}
    _taugate(variables, "calibrate", str(versions.before), "--releases", str(releases), "--max-loss", _MAX_LOSS)
    times: dict[str, float] = {}
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server())
        urls = [_serve(stack, releases, variables | {"TAUGATE_REDIS_URL": redis.url}) for _ in range(_SERVICES)]
        users = stack.enter_context(Users(urls, plan.rate))
        users.ask(versions.asked_before)
        time.sleep(_CALM_SECONDS)
        began = time.monotonic()

        def note(event: str) -> None:
            times[event] = time.monotonic() - began
            print(f"{times[event]:6.1f} s  {event}", flush=True)

        users.ask(versions.asked_after)
        note("the corpus and the questions change")
        _until(lambda: any(_alarms(url) for url in urls), "an alarm")
        note("alarm")
        process = _recalibrate(versions.after, releases, urls, variables)
        name = _promoted(releases, process, note)
        out, _ = process.communicate()
        found = orjson.loads(out)
        if process.returncode or not found["promoted"] or found["release"] != name:
            raise RuntimeError(f"exit code {process.returncode}: {found}")
        _until(lambda: all(_release(url) == name for url in urls), "the new release in service")
        note("in service everywhere")
        _until(lambda: not any(_alarms(url) for url in urls), "no alarm")
        note("no alarm in any service")
        alarms, answered = 0, len(users.asked.at)
        while len(users.asked.at) < answered + _WATCHED:
            alarms = max(alarms, sum(_alarms(url) for url in urls))
            time.sleep(_PAUSE)
        note("done")
    return _Walked(found, times, alarms, users.asked, began)


def _promoted(releases: Path, process: "subprocess.Popen[bytes]", note: Callable[[str], None]) -> str:
    """Note when the new release is written, tried and promoted; returns its id."""
    before = (releases / "current").read_text().strip()
    note("recalibration begins")
    _until(lambda: (releases / "shadow").exists() or process.poll() is not None, "a shadow")
    note("calibrated and compared; the trial begins")
    _until(lambda: (releases / "current").read_text().strip() != before or process.poll() is not None, "a promotion")
    note("promoted")
    return (releases / "current").read_text().strip()


def _serve(stack: ExitStack, releases: Path, variables: dict[str, str]) -> str:
    port = free_port()
    more = {"TAUGATE_SHADOW_SHARE": str(_SHADOW_SHARE), "TAUGATE_RELOAD_SECONDS": str(_RELOAD_SECONDS)}
    more["TAUGATE_DRAIN_SECONDS"] = "0"
    command = [sys.executable, "-m", "taugate", "serve", "--releases", str(releases), "--port", str(port)]
    log = stack.enter_context((releases.parent / f"service-{port}.log").open("wb"))
    process = subprocess.Popen(command, env=variables | more, stdout=log, stderr=log)
    stack.callback(process.wait, timeout=60)
    stack.callback(process.terminate)
    url = f"http://127.0.0.1:{port}"
    _until(lambda: _answers(url), f"{url} to be ready")
    return url


def _recalibrate(
    data: Path, releases: Path, urls: Sequence[str], variables: dict[str, str]
) -> "subprocess.Popen[bytes]":
    command = ["nice", "-n", "19"]  # searches come first, on the same two cores
    command += [sys.executable, "-m", "taugate", "recalibrate", str(data), "--releases", str(releases), "--json"]
    command += ["--shadow", str(_TRIED)]
    command += [part for url in urls for part in ("--url", url)]
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE)


def _taugate(variables: dict[str, str], *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "taugate", *arguments], check=True, env=variables, stdout=subprocess.DEVNULL)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _release(url: str) -> str:
    return str(httpx.get(f"{url}/readyz", timeout=30).json()["release"])


def _alarms(url: str) -> int:
    """Count the drift alarms that a service has on."""
    lines = httpx.get(f"{url}/metrics", timeout=30).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) > 0 for line in lines if line.startswith("taugate_drift_alarm{"))


def _until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {_PATIENCE:g} s")
        time.sleep(_PAUSE)
