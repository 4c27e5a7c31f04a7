"""Where the stand-alone program starts."""

from gpuscale.cli.main import main

if __name__ == "__main__":
    main()
