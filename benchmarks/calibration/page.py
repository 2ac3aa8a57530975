"""The page: sections of Markdown, each of which can be measured again without the others."""

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def share(value: float, digits: int = 3) -> str:
    """A share without its leading zero, as in the issue's tables."""
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def with_error(value: float, error: float, digits: int = 3) -> str:
    """A share and its standard error."""
    return f"{share(value, digits)} ± {share(error, digits)}"


def verdict(*, reached: bool) -> str:
    """Whether a target was reached."""
    return "reached" if reached else "**not reached**"


def stamp(command: str, seconds: float) -> str:
    """How and when a section was made."""
    processor = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    machine = (
        f"{processor.split(':')[1].strip()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}"
    )
    return f"*`{command}` on {datetime.now(UTC):%Y-%m-%d}, {seconds:.0f} s; {machine}.*"


def write(path: Path, title: str, introduction: str, order: Sequence[str], measured: Mapping[str, str]) -> None:
    """Put the sections measured now in their places; those that were not measured stay as they are on the page."""
    sections = _sections(path, title) | dict(measured)
    body = [f"## {heading}\n\n{sections[heading].strip()}\n" for heading in order if heading in sections]
    path.write_text(f"{title}\n\n{introduction}\n\n" + "\n".join(body), encoding="utf-8")


def _sections(path: Path, title: str) -> dict[str, str]:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if not text.startswith(title):
        return {}
    parts = (part.partition("\n") for part in text.split("\n## ")[1:])
    return {heading: body for heading, _, body in parts}
