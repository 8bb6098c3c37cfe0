"""`python -m gradwatch` is the command line."""

from gradwatch.cli import main

if __name__ == "__main__":
    main()
