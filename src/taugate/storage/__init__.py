"""Files replaced atomically, locks, digests and object stores: what stands on the operating system alone."""
