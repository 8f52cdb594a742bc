"""Inputs that nobody means well with, and a command that feeds them to graphopt: ``python -m tests.hostile``."""
