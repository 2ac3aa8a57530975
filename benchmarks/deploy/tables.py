"""Every table of docs/benchmarks/containers.md, by one command.

Needs the extras calibration, sample and test, and Docker or a container lab (tests/containers/setup.sh).
"""

import tempfile
from pathlib import Path

from benchmarks.deploy import clone, images, starts
from benchmarks.deploy.plan import ContainerPlan
from benchmarks.page import Option, Page

PAGE = Page[ContainerPlan](
    file="containers.md",
    module="benchmarks.deploy.tables",
    title="# Containers: how large, how soon",
    introduction="""\
This page measures the images of `deploy/docker/Dockerfile` and the services of `docker-compose.yml`. The line under each heading repeats
the measurement.""",
    sections={"images": images, "starts": starts, "clone": clone},
    options=[Option("starts", 10, "of the service, each in a new container", {"starts"})],
    needs_data=(),
)


def main() -> None:
    """Measure what was asked for and write it to the page."""
    arguments = PAGE.parse(PAGE.parser(__doc__))
    for name in arguments.tables:
        with tempfile.TemporaryDirectory(prefix="taugate-containers-") as work:
            PAGE.measure(name, ContainerPlan(Path(work), arguments.starts), arguments)


if __name__ == "__main__":
    main()
