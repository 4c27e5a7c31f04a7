"""Why an agent refuses its follower, with a hint: wrong credentials, or an untrusted certificate."""

from gpuscale.base.unreachable import distrust_of, reason_of

_UNAUTHORIZED = 401
_CREDENTIALS = "--agent-username with --agent-password-file, or --agent-token-file"


def refusal(status: int) -> str:
    """Return the message for an agent's status code other than 200."""
    if status != _UNAUTHORIZED:
        return f"answered {status}"
    return f"answered 401, expected a user and password that it knows; see {_CREDENTIALS}"


def agent_fault(error: Exception) -> str:
    """Return the message for a failed request to an agent."""
    if (found := distrust_of(error)) is not None:
        return (
            f"found a certificate that is not trusted ({found}), expected one by a CA of --agent-ca-file, "
            "for the name --agent-server-name, or else for the address's host"
        )
    return reason_of(error)
