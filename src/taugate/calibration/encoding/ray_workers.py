"""Workers of Ray Data: actors that encode shards in processes of their own, on this machine or on a cluster.

The only file that imports Ray (extra `ray`).
"""

import logging
import os
import secrets
import signal
import tempfile
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Any

from taugate import errors
from taugate.calibration.encoding.shards import CorpusShard, ShardRecord
from taugate.calibration.encoding.work import Work, Worker
from taugate.errors import InputError, TaugateError
from taugate.storage.folders import staging_folder

# Ray reads these when it is imported, here and in its processes: it installs nothing, and writes no lines of its own to
# the terminal, as its errors come as exceptions, too. taugate.telemetry keeps it from reporting.
_QUIET = {
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "PYTHONWARNINGS": "ignore",
}
_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # the name hides it: every server listens on 127.0.0.1 alone
_STORE_BYTES = 80 << 20  # Ray's least is 75 MiB; only descriptions of shards pass through it
_RETRIES = 5  # of a shard whose worker died: what dies so often dies of the shard, or of too little memory
_MAX_TEMPORARY = 24  # characters: Ray puts Unix sockets below, whose paths have 107 at most


class _Actor:
    """A worker in a process of Ray's. Errors travel as values: Ray would wrap them, and try again.

    Attributes:
        home: The user's home folder, as Ray was started in another one; None on a cluster.
    """

    def __init__(self, work: Work, home: str | None) -> None:
        if home is not None:
            _set_home(home)
        self._worker = Worker(work)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        try:
            record, encoded = self._worker.encode(CorpusShard(row["key"], row["start"], row["size"], row["rows"]))
        except (TaugateError, OSError) as error:
            return {"number": row["number"], "error": type(error).__name__, "message": str(error)}
        return {"number": row["number"], "record": record.model_dump_json(), "encoded": encoded}


def encode_with_ray(
    work: Work, shards: Sequence[CorpusShard], workers: int, address: str | None
) -> Generator[tuple[int, ShardRecord, bool], None, None]:
    """Yield number, record and whether it had to be encoded of each shard, in the order in which they are done.

    Args:
        work: What is encoded; for a cluster, what `Work.shared` returned.
        shards: Of the corpus.
        workers: Processes, each with one thread.
        address: Of a cluster; None for a cluster of this machine alone, which ends with the iteration.

    Raises:
        TaugateError: , the first of a worker, and InputError where Ray or the workers fail.
        OSError: , the first of a worker, and InputError where Ray or the workers fail.
    """
    rows = [{"number": number} | asdict(shard) for number, shard in enumerate(shards)]
    with _cluster(workers, address) as ray:
        try:
            # a block is what is handed to a worker at a time: one shard
            encoded = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
                _Actor,
                fn_constructor_args=[work, _home() if address is None else None],
                compute=ray.data.ActorPoolStrategy(size=min(workers, len(rows))),
                num_cpus=1,
                ray_remote_args_fn=lambda: {"max_restarts": -1, "max_task_retries": _RETRIES},
            )
            for row in encoded.iter_rows():
                if row.get("error"):
                    raise _error(row["error"], row["message"])
                yield row["number"], ShardRecord.model_validate_json(row["record"]), row["encoded"]
        except ray.exceptions.RayError as error:
            raise InputError(
                f"a worker of Ray failed ({_reason(error)}); where memory is short, give fewer --workers; what is "
                "encoded stays"
            ) from error


@contextmanager
def _cluster(workers: int, address: str | None) -> Iterator[Any]:
    """Connect to a cluster, or start one of this machine that ends with the `with` block; yields Ray itself."""
    os.environ.update(_QUIET | (_LOOPBACK if address is None else {}))
    if address is None:
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # other users of this machine could run code as this one
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        import ray
        import ray.data
    except ModuleNotFoundError as error:
        raise InputError(
            f"{error.name} is not installed, and --workers needs it: pip install 'taugate[ray]', or leave --workers out"
        ) from error
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    temporary = tempfile.gettempdir() if len(tempfile.gettempdir()) <= _MAX_TEMPORARY else "/tmp"  # noqa: S108
    with ExitStack() as ending:
        scratch = ending.enter_context(staging_folder(Path(temporary), "taugate-ray-"))
        # Ray prints there when a worker dies, and until it has ended; what the command prints is for programs.
        nowhere = ending.enter_context(Path(os.devnull).open("w", encoding="utf-8"))
        ending.enter_context(redirect_stdout(nowhere))
        ending.callback(ray.shutdown)
        _start(ray, workers, address, scratch)
        for number, handler in handlers.items():  # Ray's own would end the process without a word
            signal.signal(number, handler)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = context.print_on_execution_start = False
        for name in ("ray", "ray.data"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        ending.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield ray


def _start(ray: Any, workers: int, address: str | None, scratch: Path) -> None:  # noqa: ANN401 (a module)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "critical"}
    try:
        with _no_stderr():  # Ray's C++ writes there that it will be quiet
            if address is not None:
                ray.init(address, **quiet)
                return
            with _own_home(scratch):
                ray.init(
                    "local",
                    num_cpus=workers,
                    num_gpus=0,
                    include_dashboard=False,
                    object_store_memory=_STORE_BYTES,
                    _temp_dir=str(scratch),
                    _system_config={"enable_metrics_collection": False},
                    **quiet,
                )
    except (ray.exceptions.RayError, OSError, RuntimeError, ValueError) as error:
        where = "a cluster of this machine" if address is None else f"--ray-address {address}"
        raise InputError(f"{where}: Ray does not start or does not answer ({_reason(error)})") from error


@contextmanager
def _own_home(folder: Path) -> Iterator[None]:
    """Let the processes that Ray starts in this block have a home folder that says which cloud they are in: none.

    Even if its reports are off, and without a dashboard, Ray asks the metadata services of three clouds, unless this
    file of its cluster launcher says what they would.

    Args:
        folder: Becomes the home.
    """
    (folder / "ray_bootstrap_config.yaml").write_text("{}\n", encoding="utf-8")
    home = os.environ.get("HOME")
    _set_home(str(folder))
    try:
        yield
    finally:
        _set_home(home)


def _home() -> str:
    return os.path.expanduser("~")  # noqa: PTH111 (Path raises an error for a user who has none)


def _set_home(home: str | None) -> None:
    if home is None:
        os.environ.pop("HOME", None)
    else:
        os.environ["HOME"] = home


@contextmanager
def _no_stderr() -> Iterator[None]:
    """Send what is written to file descriptor 2 nowhere."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _error(name: str, message: str) -> Exception:
    """Return the error that a worker has met, as this process would have met it."""
    kind = getattr(errors, name, None)
    return kind(message) if isinstance(kind, type) else OSError(message)


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:200]
