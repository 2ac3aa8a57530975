"""Traces of strace: look-ups and connections are recognised in every form that they have."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.network_trace import contacts, contacts_of, traced, unavailable
from tests.servers import require

LINES = {
    # look-ups over UDP, by glibc and by musl
    r'7 sendmmsg(3, [{msg_hdr={msg_iov=[{iov_base="\313\306\1\0\0\1\0\0\0\0\0\0\6google\10internal\0\0\1\0\1", '
    r"iov_len=33}]}}], 1, MSG_NOSIGNAL) = 1": ["google.internal"],
    r'7 sendto(3, "d:\1\0\0\1\0\0\0\0\0\0\4host\0\0\34\0\1", 22, MSG_NOSIGNAL, NULL, 0 <unfinished ...>': ["host"],
    '7 connect(3, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("127.0.0.53")}, 16) = 0': [
        "127.0.0.53 port 53"
    ],
    '7 connect(3, {sa_family=AF_UNIX, sun_path="/run/systemd/resolve/io.systemd.Resolve"}, 42) = 0': [
        "/run/systemd/resolve/io.systemd.Resolve"
    ],
    # another host
    '7 connect(3, {sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("169.254.169.254")}, 16) = -1': [
        "169.254.169.254 port 80"
    ],
    '7 connect(3, {sa_family=AF_INET6, sin6_port=htons(443), inet_pton(AF_INET6, "2001:db8::1", '
    "&sin6_addr), sin6_scope_id=0}, 28) = 0": ["2001:db8::1 port 443"],
    # this machine
    '7 connect(3, {sa_family=AF_INET, sin_port=htons(8000), sin_addr=inet_addr("127.0.0.1")}, 16) = 0': [],
    '7 connect(3, {sa_family=AF_INET6, sin6_port=htons(80), inet_pton(AF_INET6, "::ffff:127.0.0.1", '
    "&sin6_addr), sin6_scope_id=0}, 28) = 0": [],
    '7 connect(4, {sa_family=AF_UNIX, sun_path="/var/run/nscd/socket"}, 110) = -1 ENOENT': [],
    r'7 sendto(9, "GET /readyz HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n\r\n", 44, 0, NULL, 0) = 44': [],
}


@pytest.mark.parametrize(("line", "expected"), LINES.items())
def test_trace_line_yields_names_and_hosts(line: str, expected: list[str]) -> None:
    assert list(contacts_of(line)) == expected


def test_lookup_of_a_child_is_traced(tmp_path: Path) -> None:
    require("strace")
    if reason := unavailable():
        pytest.skip(reason)
    look_up = "import socket\ntry: socket.getaddrinfo('name.invalid', 80)\nexcept OSError: pass"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {look_up!r}])"
    subprocess.run(traced(tmp_path)([sys.executable, "-c", parent]), check=True)
    assert any(re.search(r"^name\.invalid$|port 53$|resolve", contact) for contact in contacts(tmp_path))
