"""A reader of untrusted bytes, as a fuzzer uses it."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from taugate.errors import TaugateError


@dataclass(frozen=True)
class Reader:
    """A reader with its seeds.

    Attributes:
        name: Name of the reader.
        read: Reads bytes, and uses the result as the product does.
        seeds: Inputs that the product itself wrote.
        may: Errors that the reader may raise.
        words: Pieces that a fuzzer inserts.
    """

    name: str
    read: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    may: tuple[type[Exception], ...] = (TaugateError,)
    words: tuple[bytes, ...] = ()

    def __call__(self, content: bytes) -> None:
        """Read an input; any error outside `may` is a finding."""
        with suppress(*self.may):
            self.read(content)


def of_file(path: Path, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """Return a reader of bytes for a reader of files."""

    def read_bytes(content: bytes) -> object:
        path.write_bytes(content)
        return read(path)

    return read_bytes


JSON_WORDS = (
    b"null", b"true", b"[]", b"{}", b'""', b"-1", b"0", b"1e999", b"1e300", b"18446744073709551616", b"\\ud800", b"[[",
)  # fmt: skip
TENSOR_WORDS = (
    b'"F64"', b'"F32"', b'"I64"', b'"U8"', b'"BOOL"', b'"BF16"', b'"dtype"', b'"shape":[', b'"data_offsets":[',
    b"[0,0]", b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f", b"\xff\xff\xff\xff\xff\xff\xff\xff",
)  # fmt: skip
