"""The code blocks of a page, run in their order as a reader would run them.

A block of `sh` is run by bash, one of `python` by Python, both in a folder of the page's own. A command that serves
goes to the background until the next one, or the end of the page. Port 8000 becomes a free port. What cannot be run
here has a check in its place: an installation must name extras that exist, Helm commands are rendered by the chart, and
docker commands must name profiles, services and targets that exist; kubectl commands are not checked. A block after a
comment `<!-- not run: reason -->` is left out. A reader may be given what `taugate quickstart` writes: the command then
copies it and, without --no-serve, serves its release. Programs find a language model at MODEL_URL, one that repeats
what it reads unless the environment names another. A block of `json` must have the fields of what the block before it
printed.
"""

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from typing import Any

import httpx
import yaml
from markdown_it import MarkdownIt

from tests.helm.rendered import KEYS, Values, merged, render
from tests.language_model import fake_model
from tests.loopback import free_port

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "clients" / "python"
EXTRAS = {
    name: set(
        tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    )
    for name, folder in (("taugate", ROOT), ("taugate-client", CLIENT))
}
_READY_SECONDS = 300  # of which encoding the sample for the first time takes most
_BLOCK_SECONDS = 300  # for one block, on a machine that does other things as well
_QUICKSTART = re.compile(r"^taugate quickstart( --no-serve)?$", re.MULTILINE)
_SERVE_IT = "taugate serve --releases quickstart/releases"
_SERVES = re.compile(r"^(\w+=\S+ )*(taugate serve|taugate quickstart(?!.*--no-serve)|make quickstart$)")


@dataclass(frozen=True)
class CodeBlock:
    """A block of a page: its language, its text, the line it begins in, and whether a comment says not to run it."""

    language: str
    text: str
    line: int
    left_out: bool


def code_blocks(page: str) -> list[CodeBlock]:
    """Return the blocks of a page of Markdown in their order."""
    found, left_out = [], False
    for token in MarkdownIt().enable("table").parse(page):
        if token.type == "html_block":
            left_out = token.content.startswith("<!-- not run: ")
        elif token.type == "fence":
            line = (token.map or [0])[0] + 1
            found.append(CodeBlock(token.info.strip(), token.content, line, left_out))
        if token.type != "html_block":
            left_out = False
    return found


class PageRun:
    """A reader who runs the blocks of one page in a folder of their own."""

    def __init__(self, folder: Path, model: str = "", quickstart: Path | None = None) -> None:
        """folder: an empty one; model: base URL of a language model that speaks OpenAI's API; quickstart: what that
        command wrote; None runs it.
        """
        self.folder = folder
        self._quickstart = quickstart
        self.port = free_port()
        self.printed = ""  # by the last block that was run
        self._service: subprocess.Popen[bytes] | None = None
        self._files: dict[str, Values] = {}  # blocks of YAML that begin with the name of a file
        self._helm: Values = dict(KEYS)  # what an upgrade finds: the installation of how-to/kubernetes.md
        programs = folder / "programs"
        programs.mkdir()
        taugate = programs / "taugate"
        taugate.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m taugate "$@"\n', encoding="utf-8")
        taugate.chmod(0o755)
        mcp = programs / "taugate-mcp"  # an MCP client hands on PATH, and no PYTHONPATH
        mcp.write_text(
            f'#!/bin/sh\nPYTHONPATH="{CLIENT / "src"}" exec "{sys.executable}" -m taugate_mcp "$@"\n', encoding="utf-8"
        )
        mcp.chmod(0o755)
        (programs / "python3").symlink_to(sys.executable)
        self._environment = os.environ | {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{CLIENT / 'src'}",
            "HAYSTACK_TELEMETRY_ENABLED": "False",
            "TAUGATE_PORT": str(self.port),
            "MODEL_URL": model,
        }

    def run(self, block: CodeBlock) -> None:
        """Run a block, or check it where it cannot be run.

        Raises:
            AssertionError: With what went wrong.
        """
        if block.left_out or block.language in ("", "text"):
            return
        match block.language:
            case "sh":
                self._run_shell(block.text)
            case "python":
                self._execute([sys.executable, "-c", self._local(block.text)])
            case "json":
                printed = shape(json.loads(self.printed))
                assert shape(json.loads(block.text)) == printed, f"the reply has other fields: {self.printed}"
            case "yaml":
                name = re.match(r"# (\S+\.yaml)\n", block.text)
                documents = list(yaml.safe_load_all(block.text))
                if name is not None:
                    self._files[name[1]] = documents[0]
            case other:
                raise AssertionError(f"blocks of {other!r} are not known; use sh, python, json, yaml or text")

    def _run_shell(self, text: str) -> None:
        text = _without_installations(text)
        if self._quickstart is not None and _QUICKSTART.search(text):
            copytree(self._quickstart, self.folder / "quickstart")
            text = _QUICKSTART.sub(lambda found: "" if found[1] else _SERVE_IT, text)
        commands = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
        if any(command.startswith(("helm ", "kubectl ", "docker ")) for command in commands):
            self._check(commands)
        elif commands and _SERVES.match(commands[-1]):
            self._execute(["bash", "-euo", "pipefail", "-c", self._local("\n".join(commands[:-1]))])
            self._serve(commands[-1])
        else:
            self._execute(["bash", "-euo", "pipefail", "-c", self._local(text)])

    def close(self) -> None:
        """End the service."""
        if self._service is not None:
            self._service.terminate()
            self._service.wait(timeout=30)
            self._service = None

    def _local(self, text: str) -> str:
        return text.replace("127.0.0.1:8000", f"127.0.0.1:{self.port}")

    def _execute(self, command: list[str]) -> None:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=_BLOCK_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        self.printed = done.stdout

    def _serve(self, command: str) -> None:
        """Start a command that serves and wait until it is ready."""
        self.close()
        command = command.replace("make quickstart", "taugate quickstart")
        if "quickstart" in command:
            command += f" --port {self.port}"
        log = self.folder / "service.log"
        with log.open("wb") as output:
            self._service = subprocess.Popen(
                ["bash", "-c", re.sub(r"taugate (?=serve|quickstart)", "exec taugate ", command)],
                cwd=self.folder, env=self._environment, stdout=output, stderr=output,
            )  # fmt: skip
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            assert self._service.poll() is None, log.read_text(encoding="utf-8")
            try:
                if httpx.get(f"http://127.0.0.1:{self.port}/readyz").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        raise AssertionError(f"the service did not become ready: {log.read_text(encoding='utf-8')}")

    def _check(self, commands: list[str]) -> None:
        """Check commands for a cluster or an engine of containers: the chart, the Dockerfile and compose know them."""
        built: set[str] = set()
        for command in commands:
            words = shlex.split(command, comments=True)
            if words[:2] == ["helm", "test"]:
                assert self._helm["tests"]["key"]["existingSecret"], "the test of the chart needs a key"
            elif words[0] == "helm":
                assert words[words.index("taugate") + 1] == "helm/taugate", command
                files = [self._files[file] for option, file in itertools.pairwise(words) if option == "--values"]
                given = merged(*files, helm_values(words))
                self._helm = merged(self._helm, given) if "--reset-then-reuse-values" in words else given
                render(self._helm)
            elif words[:2] == ["docker", "build"]:
                target = words[words.index("--target") + 1]
                dockerfile = ROOT / words[words.index("-f") + 1]
                assert f" AS {target}\n" in dockerfile.read_text(encoding="utf-8"), command
                built.add(words[words.index("-t") + 1])
            elif words[:2] == ["docker", "push"]:
                assert words[2] in built, f"{words[2]} was not built before"
            elif "compose" in words:
                services = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
                profiles = {profile for each in services.values() for profile in each.get("profiles", ())}
                if "--profile" in words:
                    assert words[words.index("--profile") + 1] in profiles, command
                if "run" in words:
                    assert words[words.index("--rm") + 1] in services, command
            elif words[0] == "sh":
                assert (ROOT / words[1]).is_file(), command
            elif words and words[0] != "kubectl":
                raise AssertionError(f"nothing checks {command!r}; add a check, or move it to a block of its own")


def helm_values(words: list[str]) -> Values:
    """Return the values that the options of a Helm command give."""
    values: Values = {}
    for option, given in itertools.pairwise(words):
        if option in ("--set", "--set-string", "--set-json"):
            path, _, text = given.partition("=")
            value: Any = yaml.safe_load(text) if option != "--set-string" else text
            if text.startswith("{") and option != "--set-json":
                value = text.strip("{}").split(",")
            for name in reversed(path.split(".")):
                value = {name: value}
            values = merged(values, value)
    return values


def shape(value: object) -> object:
    """Return the fields of a JSON value without their values; of a list, those of its first element."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items()}
    return [shape(value[0])] if isinstance(value, list) and value else None


@contextmanager
def page_run(folder: Path, quickstart: Path | None = None) -> Iterator[PageRun]:
    """A reader whose service ends with the context; folder and quickstart as for PageRun."""
    with ExitStack() as stack:
        model = os.environ.get("MODEL_URL") or stack.enter_context(fake_model()).url
        reader = PageRun(folder, model, quickstart)
        stack.callback(reader.close)
        yield reader


def _without_installations(text: str) -> str:
    """Return a script without installations, whose extras are checked in their place."""
    kept = []
    for line in text.splitlines():
        installed = re.fullmatch(r"pip install '?(taugate|taugate-client)(?:\[([\w,]+)\])?'?", line)
        if installed:
            named, known = {name for name in (installed[2] or "").split(",") if name}, EXTRAS[installed[1]]
            assert named <= known, f"no such extra: {named - known}"
        else:
            kept.append(line)
    return "\n".join(kept)
