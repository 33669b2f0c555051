"""`python -m lakehouse_ingest` is the command."""

from lakehouse_ingest.cli.app import main

if __name__ == "__main__":
    main()
