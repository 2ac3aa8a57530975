"""`helm test`: the pod searches through the Service, and its program is run here against a real one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helm.rendered import CHART, KEYS, at, plain, render, secrets
from tests.service.access.files import APP, SCRAPER, entry
from tests.service_process import ServiceProcess

WITH_KEY = at("tests.key", "search-key/token")


def container(*parts: dict[str, Any]) -> dict[str, Any]:
    (found,) = render(*parts).one("Pod", "-test-search")["spec"]["containers"]
    return dict(found)


def test_no_test_pod_without_key() -> None:
    assert render(KEYS).of("Pod") == []


def test_test_pod_searches_service() -> None:
    values = (KEYS, WITH_KEY, at("service.port", 8080))
    assert render(*values).one("Pod", "-test-search")["metadata"]["annotations"]["helm.sh/hook"] == "test"
    search = container(*values)
    assert plain(search)["SERVICE"] == "http://shop-taugate:8080"
    assert secrets(search) == {"KEY": ("search-key", "token")}
    assert search["image"] == render(KEYS).container["image"]
    assert secrets(container(at("settings.allow_unauthenticated", True))) == {}


def test_test_pod_contains_whole_program() -> None:
    (program,) = container(KEYS, WITH_KEY)["args"]
    assert program.strip() == (CHART / "files" / "search.py").read_text(encoding="utf-8").strip()


@pytest.fixture(scope="module")
def service(releases: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """One with the file of keys that the chart makes."""
    entries = [entry(APP, "app", "search"), entry(SCRAPER, "scraper", "metrics")]
    made = render({"keys": {"entries": entries}}).one("Secret", "-keys")["stringData"]
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_text(made["keys.json"], encoding="utf-8")
    with ServiceProcess(releases, TAUGATE_KEYS_FILE=str(keys)) as process:
        yield process.ready()


def run(key: str, url: str) -> subprocess.CompletedProcess[str]:
    search = container(KEYS, WITH_KEY)
    assert search["command"] == ["python", "-c"]
    variables = os.environ | plain(search) | {"SERVICE": url, "KEY": f"{key}\n"}  # as a Secret from a file has it
    command = [sys.executable, "-c", *search["args"]]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def test_search_succeeds_for_running_service(service: ServiceProcess) -> None:
    done = run(APP, f"http://127.0.0.1:{service.port}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("release 2")


def test_search_reports_refusal(service: ServiceProcess) -> None:
    done = run(SCRAPER, f"http://127.0.0.1:{service.port}")
    assert done.returncode == 1
    assert "/search: 403" in done.stderr
    assert "forbidden" in done.stderr


def test_search_reports_unreachable_service() -> None:
    done = run(APP, "http://127.0.0.1:9")
    assert done.returncode == 1
    assert done.stderr.startswith("http://127.0.0.1:9/search: ")
    assert "Traceback" not in done.stderr
