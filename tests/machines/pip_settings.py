"""The configuration of this machine's pip as options of a container, so that pip in it finds the same packages."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


def container_options() -> list[str]:
    """Return options of `docker run` for pip's settings, the files that they name, and proxies."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    proxies = {name: os.environ[name] for name in _PROXIES if name in os.environ}
    return [*options(environment(listed)), *(f"--env={name}={value}" for name, value in proxies.items())]


def environment(listed: str) -> dict[str, str]:
    """Return the lines of `pip config list` as environment variables of pip; those of this process take precedence.

    Args:
        listed: Lines such as `global.extra-index-url='file:///packages/simple'`.
    """
    lines = [line.partition("=") for line in listed.splitlines() if "=" in line]
    values = {}
    for key, _, value in sorted(lines, key=lambda line: line[0].startswith(":env:")):
        name = re.sub(r"^(:env:|\w+)\.", "", key).upper().replace("-", "_")
        values[f"PIP_{name}"] = str(ast.literal_eval(value))
    return values


def options(settings: dict[str, str]) -> list[str]:
    """Return the settings as options; folders and files that they name are mounted read-only.

    A folder keeps its path; for an index this is the folder above `simple`. A file gets a new path, as a package of
    the image may replace the certificates at their usual path.
    """
    variables, mounts = [], set()
    for name, value in settings.items():
        if Path(value).is_file():
            mounts.add(f"--volume={Path(value).resolve()}:/pip/{name}:ro")
            variables.append(f"--env={name}=/pip/{name}")
            continue
        variables.append(f"--env={name}={value}")
        folders = {Path(word.removeprefix("file://").removesuffix("/simple")) for word in value.split()}
        mounts |= {f"--volume={path}:{path}:ro" for path in folders if path.is_absolute() and path.is_dir()}
    return [*variables, *sorted(mounts)]
