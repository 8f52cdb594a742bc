"""``graphopt bench``: how much faster a model is as graphopt or another tool writes it, measured.

In the order in which a benchmark runs through them:

    plan      what is asked for
    variants  the original at the runtime's levels, what peers and graphopt make of it, each checked against it
    peers     other people's optimisers, in processes of their own
    children  commands and conversations with such processes; worker: a session in one
    tune      settings of the session worth using
    run       all of this for models, providers and threads: ``graphopt.bench``
    results   the records of what was found, and their JSON; csv: the same as a table

What they take is measured by ``graphopt.runtime.rounds``. The package is not called like the function, which it would hide as soon as it is imported.
"""
