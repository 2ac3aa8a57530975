"""How well whole documents are found when their chunks are searched, by the size and the overlap of the chunks."""
