"""Lets ``python -m graphopt`` do what the ``graphopt`` command does."""

from graphopt.cli.main import main

if __name__ == "__main__":
    main()
