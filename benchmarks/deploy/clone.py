"""Time the way from a clean clone to an answered search, by the commands of the README and nothing else."""

import os
import time

import httpx

from benchmarks.deploy.plan import ContainerPlan
from benchmarks.markdown import table
from tests.containers.engine import ROOT, SERVICES, Project, engine, finished, until

HEADING = "From a clean clone to a search"
_QUERY = {"query": "Who is liable for hidden defects?"}


def section(plan: ContainerPlan) -> str:
    """Run the README's container commands in a fresh clone and time each."""
    steps: list[tuple[str, float]] = []

    began = time.perf_counter()

    def step(name: str, did: object) -> None:
        nonlocal began
        del did
        steps.append((name, time.perf_counter() - began))
        began = time.perf_counter()

    folder = plan.work / "taugate"
    step("git clone", finished(["git", "clone", "--quiet", str(ROOT), str(folder)]))
    build = ["sh", "tests/containers/setup.sh", "--no-cache"]
    lab = os.environ.get("CONTAINER_LAB_TOOL", str(ROOT.parent / "shared" / "tools" / "container-lab"))
    environment = os.environ | {"CONTAINER_LAB_TOOL": lab}
    step("build, nothing cached", finished(build, cwd=folder, env=environment, timeout=3600))
    project = Project(folder)
    step("secrets.sh", None)
    try:
        step("compose run demo", project.compose("run", "--rm", "demo"))
        step("compose up", project.compose("up", "--detach", *SERVICES))
        until(lambda: httpx.get(f"{project.url('taugate')}/readyz").status_code == httpx.codes.OK)
        reply = httpx.post(f"{project.url('taugate')}/search", json=_QUERY, headers=project.key("app"))
        step("a search answered", reply.raise_for_status())
        until(lambda: _all_up(project))
        step("Prometheus: all targets up", None)
    finally:
        project.compose("down", "--volumes", check=False)
    rows = [[name, f"{seconds:.1f} s"] for name, seconds in steps]
    built = (
        "docker compose build"
        if engine() == "docker"
        else "buildah, with PyTorch's build for the CPU, and images of Debian's own packages\nfor Redis, Prometheus and Alertmanager"
    )
    return f"""\
The commands of the README's "Run it with containers", step by step in a new clone: {built}. Grafana is left out
where there is no image of it. Prometheus scrapes every 15 s.

{table(["step", "took"], [*rows, ["together", f"{sum(seconds for _, seconds in steps):.1f} s"]])}"""


def _all_up(project: Project) -> bool:
    targets = httpx.get(f"{project.url('prometheus')}/api/v1/targets").json()["data"]["activeTargets"]
    return {target["health"] for target in targets} == {"up"}
