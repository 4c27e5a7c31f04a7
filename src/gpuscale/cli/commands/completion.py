"""`gpuscale completion`: what makes a shell complete commands and flags."""

from enum import Enum
from typing import Annotated

import typer


class Shell(Enum):
    """Whose completion."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="Which shell.")]) -> None:
    """Print the script that makes a shell complete gpuscale's commands and flags.

    To have it in every new shell, add the line of the example to ~/.bashrc or ~/.zshrc (with zsh in place of
    bash, after compinit). For fish: gpuscale completion fish > ~/.config/fish/completions/gpuscale.fish

    Example:  source <(gpuscale completion bash)
    """
    from typer import completion as typers

    name, variable = "gpuscale", "_GPUSCALE_COMPLETE"
    script = typers.get_completion_script(  # type: ignore[attr-defined]  # public, but not in __all__
        prog_name=name, complete_var=variable, shell=shell.value
    )
    print(script)
