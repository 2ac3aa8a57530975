"""The files of the page, and the headers that whoever serves them sends with each."""

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

# Nothing is loaded from elsewhere, nothing inline runs, and no other page may frame this one.
PAGE_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_MEDIA_TYPES = {
    "app.html": "text/html; charset=utf-8",
    "app.css": "text/css; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
}


@dataclass(frozen=True)
class PageFile:
    """A file of the page.

    content: its bytes; media_type: with the charset; etag: changes whenever the content does, in quotes.
    """

    content: bytes
    media_type: str
    etag: str


def page_files() -> dict[str, PageFile]:
    """Read the files, by the path that each has below the page's folder.

    The page itself is at "", and links to "playground/app.css" and "playground/app.js".
    """
    return {"" if name == "app.html" else f"playground/{name}": _read(name) for name in _MEDIA_TYPES}


def _read(name: str) -> PageFile:
    content = files(__package__).joinpath(name).read_bytes()
    return PageFile(content, _MEDIA_TYPES[name], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
