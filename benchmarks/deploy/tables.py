"""Every table of docs/benchmarks/containers.md, by one command.

Needs the extras calibration, sample and test, and Docker or a container lab (tests/containers/setup.sh).
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # the container engine, and the project as compose runs it
sys.path.append(str(ROOT / "benchmarks" / "calibration"))  # Markdown

import clone  # noqa: E402
import images  # noqa: E402
import page  # noqa: E402
import starts  # noqa: E402

TITLE = "# Containers: how large, how soon"
INTRODUCTION = """\
What `deploy/docker/Dockerfile` builds and `docker-compose.yml` runs. The line under each heading says how to measure it again."""
SECTIONS = {"images": images, "starts": starts, "clone": clone}
_OPTIONS = {"images": "", "starts": " --starts {starts}", "clone": ""}


def main() -> None:
    """Measure what was asked for and write it to the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--starts", type=int, default=10, help="of the service, each in a new container")
    parser.add_argument("--tables", nargs="*", choices=[*SECTIONS], default=[*SECTIONS], help="sections to measure")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks" / "containers.md")
    arguments = parser.parse_args()
    headings = [module.HEADING for module in SECTIONS.values()]
    for name in arguments.tables:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="taugate-containers-") as work:
            text = SECTIONS[name].section(Path(work), arguments.starts)
        seconds = time.perf_counter() - began
        command = f"python benchmarks/deploy/tables.py --tables {name}" + _OPTIONS[name].format(starts=arguments.starts)
        measured = {SECTIONS[name].HEADING: f"{page.stamp(command, seconds)}\n\n{text}"}
        page.write(arguments.page, TITLE, INTRODUCTION, headings, measured)
        print(f"{name}: {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
