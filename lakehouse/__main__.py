"""`python -m lakehouse`: the command line, for processes that know only their interpreter."""

from lakehouse.cli import main

if __name__ == "__main__":
    main()
