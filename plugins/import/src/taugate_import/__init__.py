"""Documents from files of many formats, for Taugate: PDF, web pages, office files, mails, tables."""

# The default size and overlap of a chunk, in tokens, follow from benchmarks/decisions.md, a study of ten public sets:
# smaller chunks find prose better and code worse, and an overlap finds too little for the chunks that it adds.
CHUNK_TOKENS = 128
OVERLAP_TOKENS = 0
