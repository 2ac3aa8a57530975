"""The check that tests of all parsers make: the documents keep the words and numbers of the file."""

from taugate.data.parsed import ParsedFile
from taugate_import.word_share import lost_numbers, share_kept


def complete(parsed: ParsedFile, share: float = 1) -> ParsedFile:
    """Return a parsed file, after a check that its documents have this share of its words, and all numbers."""
    compared = (parsed.source_text, parsed.documents, parsed.left_out)
    assert share_kept(*compared) >= share
    assert not lost_numbers(*compared)
    return parsed
