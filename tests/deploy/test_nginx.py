"""The committed configuration of nginx: a rolling restart of replicas fails no request."""

import threading
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.nginx_process import nginx
from tests.service_process import ServiceProcess

CLIENTS = 4


@pytest.mark.slow
def test_rolling_restart_fails_no_request(releases: Path) -> None:
    statuses: list[int] = []
    done = threading.Event()

    def ask(client: int) -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{front}", timeout=30) as http:
            number = 0
            while not done.is_set():
                number += 1
                try:
                    statuses.append(http.post("/search", json={"query": f"permit {client} {number}"}).status_code)
                except httpx.TransportError:
                    statuses.append(0)

    with ExitStack() as stack:
        slots = [stack.enter_context(ExitStack()) for _ in range(2)]
        replicas = [slot.enter_context(ServiceProcess(releases)).ready() for slot in slots]
        front = stack.enter_context(nginx([replica.port for replica in replicas]))
        clients = [threading.Thread(target=ask, args=(client,)) for client in range(CLIENTS)]
        for client in clients:
            client.start()
        try:
            for slot, replica in zip(slots, replicas, strict=True):
                answered = len(statuses)
                code, _ = replica.stop()
                assert code == 0
                slot.close()
                slot.enter_context(ServiceProcess(releases, replica.port)).ready()
                assert len(statuses) > answered  # the other one answered meanwhile
        finally:
            done.set()
            for client in clients:
                client.join()
    assert set(statuses) == {200}


def test_service_receives_requested_host(releases: Path) -> None:
    with ServiceProcess(releases, TAUGATE_ALLOWED_HOSTS="search.example.org") as one:
        one.ready()
        with nginx([one.port, one.port]) as front, httpx.Client(base_url=f"http://127.0.0.1:{front}") as http:
            hosts = ("search.example.org", "127.0.0.1", "evil.example")
            statuses = [http.get("/release", headers={"Host": host}).status_code for host in hosts]
    assert statuses == [200, 200, 403]


def test_operator_paths_are_not_public(releases: Path) -> None:
    with ServiceProcess(releases) as one, ServiceProcess(releases) as other:
        one.ready()
        other.ready()
        with nginx([one.port, other.port]) as front, httpx.Client(base_url=f"http://127.0.0.1:{front}") as http:
            assert http.get("/readyz").status_code == 200
            assert {http.get("/metrics").status_code, http.post("/admin/reload").status_code} == {404}
