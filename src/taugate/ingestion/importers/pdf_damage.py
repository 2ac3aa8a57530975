"""Detection of damage in a PDF: pdfium repairs damaged files without reporting lost text."""

import re
import zlib

_PACKED = re.compile(rb"/Filter\s*\[?\s*/FlateDecode\b[^\x00]{0,400}?>>\s*stream(?:\r\n|\n|\r)")
_MAX_INFLATED = 256 << 20  # bytes in all; anything beyond is not checked
_STEP = 1 << 20


def damage_notes(raw: bytes) -> tuple[str, ...]:
    """Return the notes on a damaged file, as in `ParsedFile`; empty for an intact one."""
    if b"%%EOF" not in raw[-2048:]:
        return ("is cut off; text may be missing",)
    if b"/Encrypt" not in raw and not _is_sound(raw):
        return ("is damaged; text may be missing",)
    return ()


def _is_sound(raw: bytes) -> bool:
    """Return whether the compressed parts of a file can be unpacked, according to their checksums."""
    budget = _MAX_INFLATED
    for match in _PACKED.finditer(raw):
        unpacker, data = zlib.decompressobj(), raw[match.end() : raw.find(b"endstream", match.end())]
        try:
            while not unpacker.eof and budget > 0:
                size = len(unpacker.decompress(data, _STEP))
                data = unpacker.unconsumed_tail
                if not size and not data:
                    return False
                budget -= size
        except zlib.error:
            return False
    return True
