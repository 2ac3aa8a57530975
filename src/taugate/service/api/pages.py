"""Pages for browsers: the headers that protect them, their files, and the style and script that all of them share."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from taugate.service.http.operation import Operation
from taugate.service.lifecycle.serving import Serving
from taugate.service.settings import Settings

# Nothing is loaded from other hosts, no inline script runs, and no other page may frame this one.
PAGE_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
# By the end of a file's path, its media type, and the file here that all pages have before their own.
_KINDS: Final = {"": ("text/html", ()), "css": ("text/css", ("page.css",)), "js": ("text/javascript", ("page.js",))}


# What a plug-in adds as an entry point of `taugate.pages`: a function that returns the operations of a page.
Page = Callable[[Settings, Serving], list[Operation]]


@dataclass(frozen=True)
class PageFile:
    """A file of a page: its content, its media type with the charset, and a hash of the content, in quotes."""

    content: bytes
    media_type: str
    etag: str


def read_page(package: str, sources: Mapping[str, Sequence[str]], script: bytes = b"") -> dict[str, PageFile]:
    """Read the files of a page, by path.

    Args:
        package: The package that has them.
        sources: By path, the files that it is made of. The page itself has the path "", and links to the others, one
            style and one script.
        script: Goes before the script.
    """
    folder, page = files(package), {}
    for path, names in sources.items():
        media_type, shared = _KINDS[path.rpartition(".")[2]]
        parts = [files(__package__).joinpath(name) for name in shared] + [folder.joinpath(name) for name in names]
        content = b"\n".join(part.read_bytes() for part in parts)
        if path.endswith(".js"):
            content = script + content
        etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        page[path] = PageFile(content, f"{media_type}; charset=utf-8", etag)
    return page
