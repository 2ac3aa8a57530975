"""Time how soon a container answers, and how soon it stops."""

import time
from statistics import median

import httpx

from benchmarks.deploy.plan import ContainerPlan
from benchmarks.markdown import table, verdict
from tests.containers.engine import Project, image, run, until

HEADING = "Start and end"
_MAX_TO_READY, _MAX_TO_END = 3.0, 5.0  # seconds, as the project was asked for


def section(plan: ContainerPlan) -> str:
    """Start and stop each container several times and report the medians."""
    project = Project.copied(plan.work)
    try:
        project.compose("run", "--rm", "demo")
        times = [_times(f"{project.name}_releases") for _ in range(plan.starts)]
    finally:
        project.compose("down", "--volumes", check=False)
    names = ("ready", "first reply", "ended")
    columns = {name: [each[name] for each in times] for name in names}
    rows = [[name, f"{median(own):.2f} s", f"{max(own):.2f} s"] for name, own in columns.items()]
    wanted = [("ready", _MAX_TO_READY), ("ended", _MAX_TO_END)]
    targets = [
        [name, f"at most {most:g} s", f"{max(columns[name]):.2f} s", verdict(reached=max(columns[name]) <= most)]
        for name, most in wanted
    ]
    return f"""\
{plan.starts} times, a new container serves the sample release (503 documents, all-MiniLM-L6-v2 in float32). It is read-only and without
capabilities, and its files are already in the page cache. *Ready* and *first reply* count from the engine's command `start` until
/readyz is 200 and a search is answered; they include the engine's own time. *Ended* counts from SIGTERM until the process is gone.

{table(["", "median", "slowest"], rows)}

{table(["target: slowest", "wanted", "measured", ""], targets)}"""


def _times(volume: str) -> dict[str, float]:
    hardened = ["--read-only", "--tmpfs", "/tmp", "--cap-drop=all", "--security-opt=no-new-privileges"]  # noqa: S108
    options = ["--publish", "127.0.0.1::8000", "--volume", f"{volume}:/releases:ro"]
    arguments = ["create", *hardened, *options, "--env", "TAUGATE_ALLOW_ANYONE=true", image("service")]
    container = run(*arguments).stdout.split()[-1]
    try:
        began = time.perf_counter()
        run("start", container)
        url = f"http://{run('port', container, '8000').stdout.split()[0]}"
        until(lambda: httpx.get(f"{url}/readyz").status_code == httpx.codes.OK)
        ready = time.perf_counter()
        httpx.post(f"{url}/search", json={"query": "hidden defects"}).raise_for_status()
        replied = time.perf_counter()
        run("kill", "--signal", "TERM", container)
        run("wait", container)
        return {"ready": ready - began, "first reply": replied - began, "ended": time.perf_counter() - replied}
    finally:
        run("rm", "--force", container)
