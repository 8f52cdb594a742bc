"""The version, for whoever tells it: nothing below the top imports the package itself."""

__version__ = "0.1.0"
