"""A local language model is reached without a proxy; for others, errors name the proxy of the environment."""

from collections.abc import Iterator

import pytest

from taugate.data.generation import language_model as module
from taugate.data.generation.language_model import ModelEndpoint, ParaphrasePrompt
from taugate.errors import InputError
from taugate.storage.http_client import is_on_loopback
from tests.language_model import FakeModel, fake_model
from tests.loopback import free_port

REMOTE = "http://model.example/v1"
PROMPT = ParaphrasePrompt("The tower stands in the town.", 0)


@pytest.fixture
def model() -> Iterator[FakeModel]:
    with fake_model() as served:
        yield served


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "socks5://127.0.0.1:9", "no://such"])
def test_loopback_endpoint_bypasses_proxies(model: FakeModel, proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    assert ModelEndpoint(model.url, "m", None).ask(PROMPT).text


def test_unreachable_proxy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setattr(module, "TRIES", 1)
    with pytest.raises(ConnectionError, match="HTTP_PROXY names a proxy"):
        ModelEndpoint(REMOTE, "m", None).ask(PROMPT)


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "no://such", "http://[::1"])
def test_unusable_proxy_is_named(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(InputError, match="ALL_PROXY"):
        ModelEndpoint(REMOTE, "m", None)


def test_loopback_addresses_are_recognized() -> None:
    assert all(
        map(is_on_loopback, ["http://127.0.0.1:1/v1", "https://LOCALHOST", "http://[::1]:8000", "http://a.localhost"])
    )
    assert not any(map(is_on_loopback, ["http://localhost.example", "http://10.0.0.1", "http://model", "http://"]))
