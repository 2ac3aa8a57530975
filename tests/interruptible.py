"""Commands that obey SIGINT, even if a shell that runs the tests in the background makes its children ignore it."""


def interruptible(command: list[str]) -> list[str]:
    """Return a command for subprocess.Popen that restores the default action of SIGINT.

    A preexec_fn could do so too, but it runs in a fork of the test process, which sometimes aborts if gRPC has threads.
    """
    return ["env", "--default-signal=INT", *command]
