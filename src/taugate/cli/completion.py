"""`taugate completion`: print a script that completes commands and options in a shell."""

import sys

import click
from click.shell_completion import get_completion_class

from taugate.cli.terminal.command import Command


@click.command("completion", cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), help="shell to complete in")
def _completion(shell: str) -> int:
    """Print the script that completes commands and options. Save it where your shell reads it, then open a new shell:

    \b
    bash: taugate completion bash > ~/.local/share/bash-completion/completions/taugate
    zsh:  taugate completion zsh > ~/.zfunc/_taugate, with ~/.zfunc in $fpath
    fish: taugate completion fish > ~/.config/fish/completions/taugate.fish
    """  # noqa: D301, D415 (Click reads the backspace: lines that are not wrapped)
    from taugate.cli.main import COMPLETE, program

    completion = get_completion_class(shell)
    assert completion is not None  # noqa: S101 (Click has the three)
    sys.stdout.write(f"{completion(program, {}, 'taugate', COMPLETE).source()}\n")
    return 0


command = _completion
