"""Reads secrets from files, because environment variables and command lines are visible to other programs."""

from pathlib import Path

from taugate.errors import InputError
from taugate.storage.files import read_bounded

_MAX_BYTES = 64 << 10  # some are JSON Web Tokens


def read_secret(path: Path, setting: str) -> str:
    """Read a secret without the trailing newline that editors add.

    Args:
        path: The file.
        setting: Name of the setting that names the file.

    Raises:
        InputError: If the file cannot be read as text.
    """
    try:
        # Kubernetes mounts the files of a Secret as symbolic links.
        return read_bounded(path.resolve(), _MAX_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{setting}: {path} cannot be read as text; name a file with the secret alone") from error
