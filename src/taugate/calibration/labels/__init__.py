"""Few human judgements and many of a machine: accuracy, loss and τ with intervals that hold."""
