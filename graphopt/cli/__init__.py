"""The command line: each module parses one command's arguments, calls the library and renders what it returns."""
