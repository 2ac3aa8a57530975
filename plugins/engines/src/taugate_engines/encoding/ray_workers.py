"""The work of encoding shards, and Ray Data workers: actors that encode in their own processes, here or on a cluster.

The only file that imports Ray (extra `ray`).
"""

import logging
import os
import secrets
import signal
import tempfile
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict

from taugate import errors
from taugate.calibration.encoding.shards import CorpusShard, ShardRecord, finished_shard, write_shard
from taugate.errors import InputError, TaugateError
from taugate.release.encoder import DATA, LAYOUT
from taugate.release.layout import TEXTS
from taugate.retrieval.encoder.encoder import GRAPH_FILES, ExportedEncoder
from taugate.retrieval.encoder.loading import load_encoder
from taugate.retrieval.hardware import onnxruntime_version
from taugate.storage.folders import staging_folder
from taugate.storage.object_store import Place, open_place

_WAITING = "waiting"  # folder of the encoder and the documents for other machines, until everything is encoded
_ENCODER_FILES = (*GRAPH_FILES, DATA, LAYOUT)  # those that exist
_MAX_FILE_BYTES = 1 << 40  # of a file of the encoder, which this command has written
_PACKAGES = ("taugate", "onnxruntime", "tokenizers")  # with the processor, they decide the bits of a vector


@dataclass(frozen=True)
class Work:
    """An encoding job, described without objects of this process.

    Attributes:
        spool: Folder of the corpus on this machine; None if workers read it from `location`.
        folder: Folder of the encoder on this machine; None if workers read it from `location`.
    """

    location: str
    encoder: str
    dimension: int
    spool: str | None
    folder: str | None
    versions: tuple[str, ...]

    @classmethod
    def on_this_machine(cls, location: str, encoder: ExportedEncoder, spool: Path) -> "Work":
        """Describe the job for workers on this machine; `spool` has the corpus, as DocumentWriter wrote it."""
        anywhere = location if "://" in location else str(Path(location).absolute())
        return cls(anywhere, encoder.sha256, encoder.config.dimension, str(spool), str(encoder.folder), _versions())

    def shared(self, shards: Sequence[CorpusShard], progress: Callable[[int], object]) -> "Work":
        """Copy the encoder and the documents to the location of the encoding, and describe the job for any machine.

        Documents that an earlier run has copied are not copied again.

        Args:
            progress: Called with the number of documents just copied.
        """
        assert self.spool is not None and self.folder is not None  # noqa: S101 (narrows the type)
        place = open_place(self.location)
        for name in _ENCODER_FILES:
            if (Path(self.folder) / name).is_file():
                place.write(self._encoder_name(name), (Path(self.folder) / name).read_bytes())
        for shard in shards:
            if place.size(_documents_name(shard)) != shard.size:
                place.write(_documents_name(shard), self.documents(place, shard))
            progress(shard.rows)
        return Work(self.location, self.encoder, self.dimension, None, None, self.versions)

    def documents(self, place: Place, shard: CorpusShard) -> bytes:
        """Return the documents of a shard as JSON lines."""
        if self.spool is None:
            try:
                return place.read(_documents_name(shard), shard.size)
            except FileNotFoundError as error:
                raise InputError(
                    f"{self.location}/{shard.name}: is damaged; remove it and run taugate encode again"
                ) from error
        with (Path(self.spool) / TEXTS).open("rb") as file:
            return os.pread(file.fileno(), shard.size, shard.start)

    def remove_shared(self, shards: Sequence[CorpusShard]) -> None:
        """Remove the copies that `shared` has made."""
        place = open_place(self.location)
        for shard in shards:
            place.remove(_documents_name(shard))
        for name in _ENCODER_FILES:
            place.remove(self._encoder_name(name))

    def _encoder_name(self, name: str) -> str:
        return f"{_WAITING}/encoder/{self.encoder[:16]}/{name}"


class Worker:
    """Encodes shards one after the other.

    Args:
        encoder: An encoder that is already loaded; None to load it at the first shard, with one thread.
    """

    def __init__(self, work: Work, encoder: ExportedEncoder | None = None) -> None:
        self._work = work
        self._place = open_place(work.location)
        if encoder is not None:
            self._encoder = encoder

    @cached_property
    def _encoder(self) -> ExportedEncoder:
        """The encoder; raises InputError if it, or a package of this machine, differs from the job's."""
        work = self._work
        if _versions() != work.versions:
            named = ", ".join(f"{name} {installed}" for name, installed in zip(_PACKAGES, _versions(), strict=True))
            raise InputError(
                f"a worker has {named}, but the command has {', '.join(work.versions)}; install the same everywhere"
            )
        if work.folder is not None:
            return self._checked(Path(work.folder))
        with tempfile.TemporaryDirectory(prefix="taugate-encoder-") as folder:
            for name in _ENCODER_FILES:
                if self._place.size(work._encoder_name(name)) is not None:
                    with (Path(folder) / name).open("wb") as file:
                        self._place.download(work._encoder_name(name), file, _MAX_FILE_BYTES)
            return self._checked(Path(folder))

    def _checked(self, folder: Path) -> ExportedEncoder:
        encoder = load_encoder(folder, threads=1)
        if encoder.sha256 != self._work.encoder:
            raise InputError(f"{folder}: the encoder changed during the encoding; run taugate encode again")
        return encoder

    def encode(self, shard: CorpusShard, progress: Callable[[int], object] | None = None) -> tuple[ShardRecord, bool]:
        """Return the record of a shard, and whether it was encoded now or was already complete.

        Args:
            progress: Called with the number of texts just encoded.
        """
        record = finished_shard(self._place, shard, self._work.dimension)
        if record is not None:
            return record, False
        documents = self._work.documents(self._place, shard)
        return write_shard(self._place, shard, self._encoder, documents, progress), True


def _documents_name(shard: CorpusShard) -> str:
    return f"{_WAITING}/{shard.key}.jsonl"


def _versions() -> tuple[str, ...]:
    return version("taugate"), onnxruntime_version(), version("tokenizers")


# Ray reads these at import, here and in its processes. It then installs nothing and prints nothing to the terminal; its
# errors arrive as exceptions anyway. taugate.telemetry keeps it from reporting.
_QUIET = {"RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "RAY_BACKEND_LOG_LEVEL": "fatal", "PYTHONWARNINGS": "ignore"}
_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # despite its name: every server listens on 127.0.0.1 only
_STORE_BYTES = 80 << 20  # Ray's minimum is 75 MiB; only descriptions of shards pass through the store
_RETRIES = 5  # of a shard whose worker died; after that the shard itself, or too little memory, is the cause
_MAX_TEMPORARY = 24  # characters: Ray creates Unix sockets below, whose paths have at most 107


class _Row(TypedDict):
    """A shard with its number."""

    number: int
    key: str
    start: int
    size: int
    rows: int


class _Actor:
    """A worker in a Ray process. Errors are returned as values, since Ray would wrap exceptions and retry.

    Args:
        home: The user's home folder, because Ray was started in another one; None on a cluster.
    """

    def __init__(self, work: Work, home: str | None) -> None:
        if home is not None:
            _set_home(home)
        self._worker = Worker(work)

    def __call__(self, row: _Row) -> Mapping[str, str | int | bool]:
        try:
            record, encoded = self._worker.encode(CorpusShard(row["key"], row["start"], row["size"], row["rows"]))
        except (TaugateError, OSError) as error:
            return {"number": row["number"], "error": type(error).__name__, "message": str(error)}
        return {"number": row["number"], "record": record.model_dump_json(), "encoded": encoded}


def encode_with_ray(
    work: Work, shards: Sequence[CorpusShard], workers: int, address: str | None
) -> Generator[tuple[int, ShardRecord, bool], None, None]:
    """Yield each shard's number, its record, and whether it was encoded now, in the order in which they finish.

    Args:
        work: The job; for a cluster, the result of `Work.shared`.
        address: Address of a cluster; None for a cluster on this machine, which stops at the end of the iteration.
    """
    rows = [{"number": number} | asdict(shard) for number, shard in enumerate(shards)]
    with _cluster(workers, address) as ray:
        try:
            # Ray hands a worker one block at a time, so a block is one shard.
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
                f"a Ray worker failed ({_reason(error)}); if memory is short, give fewer --workers; finished shards "
                "are kept"
            ) from error


@contextmanager
def _cluster(workers: int, address: str | None) -> Iterator[Any]:
    """Connect to a cluster, or start one on this machine that stops with the `with` block; yields the module ray."""
    os.environ.update(_QUIET | (_LOOPBACK if address is None else {}))
    if address is None:
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # else other users of the machine could run code as this user
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        import ray
        import ray.data
    except ModuleNotFoundError as error:
        raise InputError(
            f"{error.name} is not installed; --workers needs it: pip install 'taugate-engines[ray]', or leave out "
            "--workers"
        ) from error
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    temporary = tempfile.gettempdir() if len(tempfile.gettempdir()) <= _MAX_TEMPORARY else "/tmp"  # noqa: S108
    with ExitStack() as ending:
        scratch = ending.enter_context(staging_folder(Path(temporary), "taugate-ray-"))
        # Ray prints to stdout when a worker dies and while it shuts down; the command's stdout is for programs.
        devnull = ending.enter_context(Path(os.devnull).open("w", encoding="utf-8"))
        ending.enter_context(redirect_stdout(devnull))
        ending.callback(ray.shutdown)
        _start(ray, workers, address, scratch)
        for number, handler in handlers.items():  # Ray's handlers would end the process silently
            signal.signal(number, handler)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = context.print_on_execution_start = False
        for name in ("ray", "ray.data"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        ending.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield ray


def _start(ray: Any, workers: int, address: str | None, scratch: Path) -> None:  # noqa: ANN401 (a module)
    init = partial(ray.init, log_to_driver=False, logging_level="critical")
    try:
        with _no_stderr():  # Ray's C++ code writes to it
            if address is not None:
                init(address)
                return
            with _own_home(scratch):
                init(
                    "local",
                    num_cpus=workers,
                    num_gpus=0,
                    include_dashboard=False,
                    object_store_memory=_STORE_BYTES,
                    _temp_dir=str(scratch),
                    _system_config={"enable_metrics_collection": False},
                )
    except (ray.exceptions.RayError, OSError, RuntimeError, ValueError) as error:
        cluster = "a cluster on this machine" if address is None else f"--ray-address {address}"
        raise InputError(f"{cluster}: Ray does not start or does not respond ({_reason(error)})") from error


@contextmanager
def _own_home(folder: Path) -> Iterator[None]:
    """Start Ray's processes with `folder` as their home, with a file saying that they run in no cloud.

    Even with reports and dashboard off, Ray queries the metadata services of three clouds unless it finds this file of
    its cluster launcher.
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
    """Discard everything written to file descriptor 2."""
    saved, devnull = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(devnull)


def _error(name: str, message: str) -> Exception:
    """Return a worker's error as an exception of the same class."""
    kind = getattr(errors, name, None)
    return kind(message) if isinstance(kind, type) else OSError(message)


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:200]
