"""`python -m gradwatch.cli`: the command line without its installed script."""

from gradwatch.cli import main

if __name__ == "__main__":
    main()
