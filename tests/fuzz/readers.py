"""All readers, by name."""

from pathlib import Path

from tests.fuzz.input_readers import input_readers
from tests.fuzz.reader import Reader
from tests.fuzz.release_readers import release_readers


def readers(releases: Path, scratch: Path) -> dict[str, Reader]:
    """Return every reader by name.

    Args:
        releases: Directory with one release, whose documents have metadata.
        scratch: Empty folder, preferably in memory.
    """
    (scratch / "release").mkdir()
    listed = [*release_readers(releases, scratch / "release"), *input_readers(scratch / "input")]
    return {reader.name.replace("/", "-"): reader for reader in listed}
