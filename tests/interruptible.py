"""Commands that end at SIGINT, also where a shell that runs the tests in the background has its children ignore it."""


def interruptible(command: list[str]) -> list[str]:
    """Return a command for subprocess.Popen that undoes that, in the same process.

    A preexec_fn would do it in a copy of the test's process, which aborts now and then where gRPC runs threads in it.
    """
    return ["env", "--default-signal=INT", *command]
