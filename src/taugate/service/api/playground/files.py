"""The files of the page, and the headers that whoever serves them sends with each."""

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import Final, Literal

# Nothing is loaded from elsewhere, nothing inline runs, and no other page may frame this one.
PAGE_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_MODE = b'data-mode="%s"'  # of the page's body, for its style and script
# The one module of the page, in order: a part uses what those before it declare, and the last one starts the page.
_SCRIPT = ("computing", "elements", "service", "asking", "results", "threshold", "panels", "judging")
_SOURCES = {
    "app.html": ["app.html"],
    "app.css": ["app.css"],
    "app.js": [f"script/{part}.js" for part in _SCRIPT],
}
_MEDIA_TYPES = {
    "app.html": "text/html; charset=utf-8",
    "app.css": "text/css; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
}


@dataclass(frozen=True)
class PageFile:
    """A file of the page.

    Attributes:
        content: Its bytes.
        media_type: With the charset.
        etag: Changes whenever the content does, in quotes.
    """

    content: bytes
    media_type: str
    etag: str


def page_files(mode: Literal["playground", "judge"] = "playground") -> dict[str, PageFile]:
    """Read the files, by the path that each has below the page's folder.

    The page itself is at "", and links to "playground/app.css" and "playground/app.js".

    Args:
        mode: Whether the page is the playground, or that of `taugate judge --web`.
    """
    return {"" if name == "app.html" else f"playground/{name}": _read(name, mode) for name in _MEDIA_TYPES}


def _read(name: str, mode: str) -> PageFile:
    folder = files("taugate.service.api.playground")
    content = b"\n".join(folder.joinpath(source).read_bytes() for source in _SOURCES[name])
    if name == "app.html":
        content = content.replace(_MODE % b"playground", _MODE % mode.encode())
    return PageFile(content, _MEDIA_TYPES[name], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
