"""The version, alone in a file so that it can be read without importing the package."""

__version__ = "0.3.0.dev0"
