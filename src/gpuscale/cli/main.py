"""The `gpuscale` command."""

import sys
from collections.abc import Sequence

from gpuscale.core.errors import ConfigError, GpuscaleError, QueryError, UsageError


def main() -> None:
    """Run the command line: exit 0 done, 1 the answer is no or a part failed, 2 wrong input."""
    try:
        if not _is_agent_run(sys.argv[1:]):
            from gpuscale.cli.commands import app

            app()
    except (ConfigError, UsageError, QueryError) as error:
        _fail(error, 2)
    except GpuscaleError as error:
        _fail(error, 1)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


_INTERRUPTED = 130
"""What shells and typer say of a command that SIGINT ended."""


def _is_agent_run(words: Sequence[str]) -> bool:
    """Run the node agent, if that is all that the words ask for, with less memory than typer leaves it."""
    if words[:1] != ["exporter"]:
        return False
    from gpuscale.cli import agent

    given = agent.given_flags(words[1:])
    if given is None:
        return False
    agent.run(given)
    return True


def _fail(error: GpuscaleError, code: int) -> None:
    for line in str(error).splitlines():
        print(f"gpuscale: {line}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
