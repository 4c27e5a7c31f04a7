"""The former name of `gpuscale_testing`, which the distribution gpuscale-testing brings."""

try:
    from gpuscale_testing import *  # noqa: F403
    from gpuscale_testing.__main__ import main
except ModuleNotFoundError as error:
    if error.name != "gpuscale_testing":
        raise
    raise ModuleNotFoundError(
        "found no module gpuscale_testing, which runs the control plane: install it with "
        "`pip install gpuscale-testing`, or in a checkout with `pip install ./packages/gpuscale-testing`",
        name=error.name,
    ) from None

if __name__ == "__main__":
    main()
