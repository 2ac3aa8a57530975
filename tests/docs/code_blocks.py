"""Run the code blocks of a page in order, as a reader would run them.

bash runs blocks of `sh` and Python blocks of `python`, in a new folder for each page. A command that serves runs in the
background until the next one, or until the end of the page. Port 8000 becomes a free port. Other commands are checked
instead: an installation must name existing extras, the chart renders Helm commands, and docker commands must name
existing profiles, services and targets; kubectl commands are not checked. A block after a comment
`<!-- not run: reason -->` is skipped. `taugate quickstart` may copy files of an earlier run. MODEL_URL is a language
model, by default a fake one that repeats its input. A block of `json` must have the fields that the block before it
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
from collections.abc import Iterator, Sequence
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
FOLDERS = {".": "taugate", "./clients/python": "taugate-client"} | {  # as a reader names them in a clone
    f"./plugins/{path.parent.name}": f"taugate-{path.parent.name}" for path in ROOT.glob("plugins/*/pyproject.toml")
}
EXTRAS = {
    name: set(
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"].get("optional-dependencies", ())
    )
    for folder, name in FOLDERS.items()
}
_READY_SECONDS = 300  # mostly for the first encoding of the sample
_BLOCK_SECONDS = 300  # for one block, on a busy machine
_QUICKSTART = re.compile(r"^taugate quickstart( --no-serve)?$", re.MULTILINE)
_SERVE_IT = "taugate serve --releases quickstart/releases"
_SERVES = re.compile(r"^(\w+=\S+ )*(taugate serve|taugate quickstart(?!.*--no-serve)|make quickstart$)")


@dataclass(frozen=True)
class CodeBlock:
    """A block of a page: language, text, first line, and whether a comment says to skip it (`left_out`)."""

    language: str
    text: str
    line: int
    left_out: bool


def code_blocks(page: str) -> list[CodeBlock]:
    """Return the blocks of a Markdown page in order."""
    blocks, left_out = [], False
    for token in MarkdownIt().enable("table").parse(page):
        if token.type == "html_block":
            left_out = token.content.startswith("<!-- not run: ")
        elif token.type == "fence":
            line = (token.map or [0])[0] + 1
            blocks.append(CodeBlock(token.info.strip(), token.content, line, left_out))
        if token.type != "html_block":
            left_out = False
    return blocks


class PageRun:
    """A reader who runs the blocks of one page in a new folder."""

    def __init__(
        self, folder: Path, model: str = "", quickstart: Path | None = None, taugate: Path | None = None
    ) -> None:
        """Prepare the commands of the page, in an empty folder.

        `quickstart` is a folder that `taugate quickstart` wrote, None to run the command.
        """
        self.folder = folder
        self._quickstart = quickstart
        self.port = free_port()
        self.printed = ""  # by the last block
        self._service: subprocess.Popen[bytes] | None = None
        self._files: dict[str, Values] = {}  # YAML blocks that begin with a file name, by that name
        self._helm: Values = dict(KEYS)  # values of the installed release, at first those of how-to/kubernetes.md
        programs = folder / "programs"
        programs.mkdir()
        command = f'"{sys.executable}" -m taugate' if taugate is None else f'"{taugate}"'
        # A run spares the reader's search engine; the service of the page answers as fast as it can.
        script = f'#!/bin/sh\n[ "$1" = run ] && set -- "$@" --rate 1e6\nexec {command} "$@"\n'
        (programs / "taugate").write_text(script, encoding="utf-8")
        (programs / "taugate").chmod(0o755)
        mcp = programs / "taugate-mcp"  # an MCP client passes on PATH, but not PYTHONPATH
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
            "TAUGATE_DRAIN_SECONDS": "0",  # no other service takes the place of one that ends
        }

    def run(self, block: CodeBlock) -> None:
        """Run a block, or check it if it cannot run here; AssertionError, with the output, if it fails."""
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
            case language:
                raise AssertionError(f"unknown language {language!r}; use sh, python, json, yaml or text")

    def _run_shell(self, text: str) -> None:
        text = _without_installations(text)
        if self._quickstart is not None and _QUICKSTART.search(text):
            copytree(self._quickstart, self.folder / "quickstart")
            text = _QUICKSTART.sub(lambda match: "" if match[1] else _SERVE_IT, text)
        commands = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
        if any(command.startswith(("helm ", "kubectl ", "docker ")) for command in commands):
            self._check(commands)
        elif commands and _SERVES.match(commands[-1]):
            self._execute(["bash", "-euo", "pipefail", "-c", self._local("\n".join(commands[:-1]))])
            self._serve(commands[-1])
        else:
            self._execute(["bash", "-euo", "pipefail", "-c", self._local(text)])

    def close(self) -> None:
        """Stop the service."""
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
        """Check commands for clusters and containers against the chart, the Dockerfile and the compose file."""
        built: set[str] = set()
        for command in commands:
            words = shlex.split(command, comments=True)
            if words[:2] == ["helm", "test"]:
                assert self._helm["tests"]["key"], "the test of the chart needs a key"
            elif words[0] == "helm":
                assert words[words.index("taugate") + 1] == "helm/taugate", command
                files = [self._files[file] for option, file in itertools.pairwise(words) if option == "--values"]
                values = merged(*files, helm_values(words))
                self._helm = merged(self._helm, values) if "--reset-then-reuse-values" in words else values
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
                profiles = {profile for service in services.values() for profile in service.get("profiles", ())}
                if "--profile" in words:
                    assert words[words.index("--profile") + 1] in profiles, command
                if "run" in words:
                    assert words[words.index("--rm") + 1] in services, command
            elif words[0] == "sh":
                assert (ROOT / words[1]).is_file(), command
            elif words and words[0] != "kubectl":
                raise AssertionError(f"nothing checks {command!r}; add a check, or move it to a block of its own")


def helm_values(words: list[str]) -> Values:
    """Return the values that the options of a Helm command set."""
    values: Values = {}
    for option, argument in itertools.pairwise(words):
        if option in ("--set", "--set-string", "--set-json"):
            path, _, text = argument.partition("=")
            value: Any = yaml.safe_load(text) if option != "--set-string" else text
            if text.startswith("{") and option != "--set-json":
                value = text.strip("{}").split(",")
            for name in reversed(path.split(".")):
                value = {name: value}
            values = merged(values, value)
    return values


def shape(value: object) -> object:
    """Return the fields of a JSON value without values; for a list, the fields of its first element."""
    if isinstance(value, dict):
        return {name: shape(field) for name, field in value.items()}
    return [shape(value[0])] if isinstance(value, list) and value else None


@contextmanager
def page_run(folder: Path, quickstart: Path | None = None, taugate: Path | None = None) -> Iterator[PageRun]:
    """Provide a reader whose service ends with the context; the arguments are those of PageRun."""
    with ExitStack() as stack:
        model = os.environ.get("MODEL_URL") or stack.enter_context(fake_model()).url
        reader = PageRun(folder, model, quickstart, taugate)
        stack.callback(reader.close)
        yield reader


def run_pages(pages: Sequence[Path], folder: Path, quickstart: Path | None = None, taugate: Path | None = None) -> None:
    """Run all blocks of pages that a reader follows in one folder; a failure names page and line."""
    with page_run(folder, quickstart, taugate) as reader:
        for page in pages:
            blocks = code_blocks(page.read_text(encoding="utf-8"))
            assert blocks, f"{page.name} has no blocks"
            for block in blocks:
                try:
                    reader.run(block)
                except AssertionError as error:
                    raise AssertionError(f"{page.name}, line {block.line}: {error}") from error


def _without_installations(text: str) -> str:
    """Return a script without its installations, after a check of their extras."""
    lines = []
    for line in text.splitlines():
        installed = re.fullmatch(r"pip install '?(\.|\./[\w/]+)(?:\[([\w,]+)\])?'?", line)
        if installed:
            distribution = FOLDERS[installed[1]]
            extras = {name for name in (installed[2] or "").split(",") if name}
            assert extras <= EXTRAS[distribution], f"no such extra: {extras - EXTRAS[distribution]}"
        elif not re.fullmatch(r"pip install --no-deps [\w.=-]+", line):
            lines.append(line)
    return "\n".join(lines)
