"""Names that a process and its children look up, and other hosts that they connect to, as strace sees them.

Unlike a hook in Python, strace also sees code in C and Rust. With --seccomp-bpf it stops a process only at the listed
system calls, so a traced command is hardly slower.
"""

import codecs
import ipaddress
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

_CALLS = "connect,sendto,sendmsg,sendmmsg,execve"  # the last, so that no trace is empty
_ADDRESS = re.compile(r'port=htons\((\d+)\).*?inet_(?:addr\(|pton\(AF_INET6, )"([^"]+)"')
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
# systemd's module of the C library asks its resolver through this socket instead of DNS.
_RESOLVER_SOCKET = re.compile(r'sun_path="(/run/systemd/resolve/[^"]+)"')
_QUERY = b"\x01\x00\x00\x01\x00\x00\x00\x00\x00"  # of a DNS message, behind its id: recursion desired, one question
_HEAD_BYTES = 12
_DNS_PORT = 53


def traced(folder: Path) -> Callable[[list[str]], list[str]]:
    """Return a function that makes a command line write a trace of itself into the folder."""
    folder.mkdir(exist_ok=True)

    def wrap(command: list[str]) -> list[str]:
        file = folder / f"{sum(1 for _ in folder.iterdir())}.trace"
        file.touch()
        options = ["-f", "--seccomp-bpf", "-qq", "-s", "512", "-e", f"trace={_CALLS}", "-e", "signal=none"]
        return ["strace", *options, "-o", str(file), *command]

    return wrap


def contacts(folder: Path) -> set[str]:
    """Return the names that the traced processes looked up, and the addresses of other hosts that they used."""
    return {
        contact
        for file in folder.iterdir()
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines()
        for contact in contacts_of(line)
    }


def contacts_of(line: str) -> Iterator[str]:
    """Yield the names and the other hosts in a line of a trace, which is one system call as strace writes it."""
    for port, address in _ADDRESS.findall(line):
        if int(port) == _DNS_PORT or not _is_local(address):
            yield f"{address} port {port}"
    yield from _RESOLVER_SOCKET.findall(line)
    for text in _TEXT.findall(line):
        data = codecs.escape_decode(text.encode("latin-1", "replace"))[0]
        if data[2 : 2 + len(_QUERY)] == _QUERY:
            yield _name(data[_HEAD_BYTES:])


def unavailable() -> str | None:
    """Return the reason if strace cannot show look-ups on this machine, else None.

    Traces a process that looks up a name, so that an empty trace in a test means that no name was looked up.
    """
    if shutil.which("strace") is None:
        return "strace is not installed: make test-servers"
    look_up = "import socket\ntry: socket.getaddrinfo('name.invalid', 80)\nexcept OSError: pass"
    options = ["-f", "--seccomp-bpf", "-s", "512", "-e", f"trace={_CALLS}"]
    done = subprocess.run(
        ["strace", *options, sys.executable, "-c", look_up], capture_output=True, check=False, timeout=60
    )
    seen = {contact for line in done.stderr.decode(errors="replace").splitlines() for contact in contacts_of(line)}
    return None if seen else "strace does not see that a name is looked up"


def _is_local(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    mapped = getattr(parsed, "ipv4_mapped", None) or parsed
    return bool(mapped.is_loopback or mapped.is_unspecified)


def _name(question: bytes) -> str:
    """Return the name at the start of a DNS question: labels, each after its length, until an empty one."""
    labels = []
    while question and question[0]:
        length = question[0]
        labels.append(question[1 : 1 + length].decode("latin-1"))
        question = question[1 + length :]
    return ".".join(labels)
