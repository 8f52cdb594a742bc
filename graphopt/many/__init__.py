"""Many models: each optimised as `graphopt optimize` does it, in a process of its own, into one folder.

What is finished is written down in the folder, so that a run that was killed goes on; weights that several models have in common
are written once.
"""
