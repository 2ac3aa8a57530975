"""Where people judge: the terminal, or a page in the browser on the same machine."""
