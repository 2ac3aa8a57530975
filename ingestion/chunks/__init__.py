"""Documents divided into chunks that fit the encoder's window."""
