"""A folder of odd files, the same for the same seed: sound, cut, garbled, misnamed, enormous, nested, and out of reach."""

import gzip
import io
import os
import random
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet
from markdown_it import MarkdownIt

from benchmarks.checkout import ROOT
from benchmarks.ingestion.office_writers import WRITERS

OUTSIDE = "this text lies outside the source"
_SUFFIXES = (
    *("txt", "md", "html", "pdf", "docx", "csv", "json", "jsonl", "parquet", "gz", ""),
    *("xlsx", "pptx", "odt", "eml", "ipynb", "rst", "xml", "py", "rtf", "epub"),
)
_FOLDERS = 17
_MIB = 1 << 20
_ENCODINGS = ("utf-16", "utf-32", "shift_jis", "gb18030", "koi8-r", "cp1252", "utf-8-sig")


def make_odd_folder(root: Path, files: int, seed: int) -> list[str]:
    """Make the folder; returns the paths that an import has to read or to name."""
    rng = random.Random(seed)  # noqa: S311 (no secret is made of it)
    odd, sound = _odd_files(rng), _sound_files()
    while len(odd) < files - 2:
        suffix = rng.choice(_SUFFIXES)
        content = rng.choice(_DAMAGES)(rng, sound[suffix if rng.random() < 0.7 else rng.choice(_SUFFIXES)])
        odd[f"f{len(odd)}.{suffix}" if suffix else f"f{len(odd)}"] = content
    for number in range(_FOLDERS):
        (root / f"d{number}").mkdir(parents=True)
    for number, (name, content) in enumerate(odd.items()):
        (root / f"d{number % _FOLDERS}" / name).write_bytes(content)
    made = [os.path.relpath(path, root) for path in root.rglob("*") if path.is_file()]
    return made + _out_of_reach(root)


# What becomes of a sound file: it stays, is emptied, is noise, has noise in its middle, is cut, is in another encoding,
# or has the head of a PDF or a zip archive and noise after it.
_DAMAGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    lambda _, sound: sound,
    lambda _, sound: sound,
    lambda _rng, _sound: b"",
    lambda rng, _: rng.randbytes(rng.randrange(1, 5000)),
    lambda rng, sound: sound[: len(sound) // 2] + rng.randbytes(200) + sound[len(sound) // 2 :],
    lambda rng, sound: sound[: rng.randrange(1, len(sound))],
    lambda _, sound: sound.decode("latin-1").encode("utf-16"),
    lambda rng, _: b"%PDF-1.4\n" + rng.randbytes(3000),
    lambda rng, _: b"PK\x03\x04" + rng.randbytes(2000),
)


def _sound_files() -> Mapping[str, bytes]:
    """Return a sound file of each kind, by suffix, made of one of this repository's pages."""
    text = (ROOT / "docs" / "drift.md").read_text(encoding="utf-8")
    paragraphs = [each for each in text.split("\n\n") if each.strip()]
    parquet = io.BytesIO()
    pyarrow.parquet.write_table(pa.table({"text": paragraphs}), parquet)
    return {
        "txt": text.encode(),
        "": text.encode(),
        "md": text.encode(),
        "html": MarkdownIt("commonmark").enable("table").render(text).encode(),
        "pdf": _pdf(paragraphs),
        "csv": b"title,text\n" + b"".join(b'row %d,"some, text"\n' % number for number in range(100)),
        "json": orjson.dumps([{"text": paragraph, "tags": ["page"]} for paragraph in paragraphs]),
        "jsonl": b"".join(orjson.dumps({"text": each}) + b"\n" for each in paragraphs),
        "parquet": parquet.getvalue(),
        "gz": gzip.compress(text.encode()),
        **{suffix: write(paragraphs) for suffix, write in WRITERS.items()},
    }


def _pdf(paragraphs: list[str]) -> bytes:
    """Write a PDF without a table of its objects, as readers mend it: a page a paragraph, in ASCII."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "", "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    pages = []
    for paragraph in paragraphs:
        words = "".join(each if each.isalnum() or each in " ." else " " for each in paragraph).encode("ascii", "ignore")
        stream = f"BT /F1 12 Tf 50 750 Td ({words.decode()}) Tj ET"
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents {len(objects)} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        pages.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Count {len(pages)} /Kids [{' '.join(pages)}] >>"
    body = "".join(f"{number} 0 obj\n{each}\nendobj\n" for number, each in enumerate(objects, start=1))
    return f"%PDF-1.4\n{body}trailer << /Root 1 0 R /Size {len(objects) + 1} >>\n%%EOF\n".encode()


def _odd_files(rng: random.Random) -> dict[str, bytes]:
    """Return the files that are odd each in its own way, by name."""
    many = [f"c{number}" for number in range(5000)]
    words = "Привет мир こんにちは naïve " * 20
    return {
        "deep.html": b"<div>" * 10_000 + b"deep text" + b"</div>" * 10_000,
        "deep_list.html": b"<ul><li>" * 10_000 + b"deep text",
        "deep.md": b"> " * 10_000 + b"x",
        "deep.json": b"[" * 100_000 + b"]" * 100_000,
        "200_mib.txt": b"word " * (40 * _MIB),
        "large.html": b"<p>hello world</p>" * (3 * _MIB),
        "one_word.txt": b"a" * (20 * _MIB),
        "long_field.csv": b"a,b\nx," + b"y" * (5 * _MIB),
        "wide.csv": f"{','.join(many)}\n{','.join('v' for _ in many)}".encode(),
        "wide_with_text.csv": f"text,{','.join(many)}\nhello,{','.join('v' for _ in many)}".encode(),
        "bomb.txt.gz": gzip.compress(bytes(300 * _MIB)),
        "bomb.docx": _zip_bomb("word/document.xml"),
        "bomb.xlsx": _zip_bomb("xl/worksheets/sheet1.xml"),
        "anchors.md": _yaml_bomb(),
        "broken.pdf": b"%PDF-1.7\n1 0 obj << /Type /Catalog /Pages 1 0 R >> endobj\n" + rng.randbytes(50_000),
        "many_tags.json": orjson.dumps([{"text": "x", "tags": [f"t{number}" for number in range(10_000)]}]),
        os.fsdecode(b"name\xff\xfe.txt"): b"a name that is not UTF-8",
        "line\nbreak\ttab.txt": b"a name with a line break and a tab",
        "#1.txt": b"a name with a number sign",
        **{f"{encoding}.txt": words.encode(encoding, "ignore") for encoding in _ENCODINGS},
    }


def _zip_bomb(part: str) -> bytes:
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(part, "w", force_zip64=True) as member,
    ):
        for _ in range(600):
            member.write(bytes(_MIB))
    return packed.getvalue()


def _yaml_bomb() -> bytes:
    """Front matter whose aliases unfold to a billion tags."""
    levels = "".join(f"l{level}: &l{level} [{','.join([f'*l{level - 1}'] * 9)}]\n" for level in range(1, 10))
    return f"---\nl0: &l0 [x, x, x]\n{levels}tags: *l9\ntitle: t\n---\nhello".encode()


def _out_of_reach(root: Path) -> list[str]:
    """Add links in a circle and to the outside, a pipe, and what may not be opened; returns their paths."""
    outside = root.with_name("outside.txt")
    outside.write_text(OUTSIDE)
    (root / "circle").symlink_to(root)
    (root / "outside.txt").symlink_to(outside)
    (root / "etc").symlink_to("/etc")
    os.mkfifo(root / "pipe.txt")
    (root / "closed.txt").write_text("nobody may read this")
    (root / "closed.txt").chmod(0)
    (root / "closed").mkdir()
    (root / "closed" / "inside.txt").write_text("nobody may read this")
    (root / "closed").chmod(0)
    # A superuser reads what is closed, and is told of the file within the folder instead of the folder.
    closed = "closed/inside.txt" if os.access(root / "closed", os.R_OK) else "closed"
    return ["circle", "outside.txt", "etc", "pipe.txt", "closed.txt", closed]
