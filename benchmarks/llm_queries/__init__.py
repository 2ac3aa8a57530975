"""Questions by a language model: what a small one on this machine writes, and an endpoint that fails."""
