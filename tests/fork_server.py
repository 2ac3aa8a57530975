"""Runs commands of `taugate` in forks of one process that has imported their libraries, so that each starts at once.

A fork has its own environment, folder, streams and process group, and runs `taugate.__main__.main`. A test that needs
nothing of a command but what it does saves the seconds of processor time that the imports take. MODULE in the
environment of a command names another module that Python would run, which changes something at its import.

The program `client` passes its arguments, environment, folder and streams to the process, forwards SIGHUP, SIGINT and
SIGTERM, sends SIGKILL for SIGUSR1, and ends as its command does. If it is killed itself, so is the command, a little
later.
"""

import atexit
import faulthandler
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Self

from taugate.__main__ import main

# What most commands import. The conftest says what gRPC would do in forks.
LIBRARIES = (
    "faiss", "httpx2", "onnxruntime", "scipy.optimize", "sklearn.cluster", "sklearn.linear_model",
    "taugate.calibration.job.calibration", "taugate.cli.calibrate", "taugate.cli.serve", "taugate.service.app",
)  # fmt: skip
PYTORCH = ("sentence_transformers", "torch", "transformers")
MODULE = "FORKED_MODULE"
_MAX_BYTES = 1 << 20  # of arguments and environment
# Without imports of packages, so that it starts in some 20 ms. It writes what it has to say as one message.
_CLIENT = """\
#!{python} -IS
import array, json, os, signal, socket, sys
sent = {{name: name for name in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}} | {{signal.SIGUSR1: signal.SIGKILL}}
signal.pthread_sigmask(signal.SIG_BLOCK, sent)
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect({path!r})
asked = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
server.sendmsg([asked], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
def forward(number, frame):
    try:
        server.send(b"%d" % sent[number])
    except OSError:
        pass  # the command has ended
for name in sent:
    signal.signal(name, forward)
signal.pthread_sigmask(signal.SIG_UNBLOCK, sent)
status = int(server.recv(100) or b"1")
if status < 0:
    if -status != signal.SIGKILL:  # which has no other action
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""


class ForkServer:
    """The process, from the start of the context to its end.

    Attributes:
        client: Program that takes the arguments of `taugate`.
    """

    def __init__(
        self,
        modules: Iterable[str] = LIBRARIES,
        wrap: Callable[[list[str]], list[str]] = list,
        environment: dict[str, str] | None = None,
    ) -> None:
        """Start the process.

        Args:
            modules: What it imports before the first command.
            wrap: Returns the command line that runs a command line, such as one of strace.
            environment: Environment of the imports; each command has that of its client.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="f")  # a short path, because it has a Unix socket
        path = f"{self._folder.name}/s"
        self.client = Path(self._folder.name) / "taugate"
        self.client.write_text(_CLIENT.format(python=sys.executable, path=path), "utf-8")
        self.client.chmod(0o755)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.bind(path)
        listening.listen(100)
        command = wrap([sys.executable, __file__, str(listening.fileno()), *modules])
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, pass_fds=[listening.fileno()], start_new_session=True
        )
        listening.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()  # at which it ends
        self._process.wait(60)
        self._folder.cleanup()


@cache
def shared_client() -> Path | None:
    """Return the client of a process that runs until the end of this one; None on macOS."""
    if sys.platform != "linux":
        return None
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(ForkServer()).client


def forked(*words: str) -> list[str]:
    """Return the command line of `taugate` with these arguments, run in a fork if this system has them."""
    client = shared_client()
    return [*([sys.executable, "-m", "taugate"] if client is None else [str(client)]), *words]


def serve(listening: socket.socket) -> None:
    """Fork for each client until stdin ends."""
    while True:
        readable, _, _ = select.select([listening, 0], [], [])
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if 0 in readable:
            break
        client, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            _attend(client)
            os._exit(0)
        client.close()
    with suppress(ChildProcessError):
        while True:
            os.wait()


def _attend(client: socket.socket) -> None:
    """Run the command of a client in a fork, forward signals to it, and tell its exit status."""
    data, streams, _, _ = socket.recv_fds(client, _MAX_BYTES, 3)
    pid = os.fork()
    if pid == 0:
        client.close()
        _run(data, streams)
    for stream in streams:
        os.close(stream)
    ended = os.pidfd_open(pid)
    while ended not in select.select([client, ended], [], [])[0]:
        sent = client.recv(100)
        with suppress(ProcessLookupError):
            if not sent:  # the client was killed
                os.killpg(pid, signal.SIGKILL)
                break
            os.kill(pid, int(sent))
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(OSError):
        client.send(b"%d" % status)


def _run(data: bytes, streams: list[int]) -> None:
    """Become the command, and end with its exit code.

    The objects of the imports are not freed at the end, which would take longer than most commands.
    """
    arguments, folder, environment = json.loads(data)
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    # Workers, which are no forks, import the same module.
    sys.modules["__main__"] = import_module(environment.pop(MODULE, main.__module__))
    os.environ.update(environment)
    tempfile.tempdir = None  # found by an import
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # New ones, because those of this process know whether its own streams can seek.
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.argv = ["taugate", *arguments]
    faulthandler.enable()
    code = 1
    try:
        code = main()
    except BaseException:  # noqa: BLE001 (as at the end of any process)
        sys.excepthook(*sys.exc_info())
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the interpreter does
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])
    for module in sys.argv[2:]:
        import_module(module)
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
