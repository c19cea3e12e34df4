"""`python -m tfmon`, the same as the `tfmon` command."""

from tfmon.cli import main

if __name__ == "__main__":
    main()
