"""Is a rule true?

Import the modules directly; this file stays empty so that asking for one does not load the others.

    evidence   what is recorded of a rule, and the lock file it is recorded in
    proof      the verdict: attacked at every instance, proved at as many
    instances  the bounded family of shapes and attributes
    attack     both sides of an instance in the runtime (sides), on contents of every class
    symbolic   the proof of an instance
    generic    the proof for all sizes
    evaluate   a graph over an algebra of elements: semantics, linear, windows, movement, resizing, spectral are its operators,
               domains and order the algebras, numbers what a float constant stands for
"""
