"""Equivalence: do two models compute the same function, and does a rule keep it?

Import the modules directly; this file stays empty so that asking for one does not load the others.

    numeric    two whole models on the same inputs
    compare    two values under a tolerance that follows their scale
    ranges     legal ranges of integer inputs, read off a graph
    evidence   is a rule true: everything below, and the lock file
    sides      both sides of a rule's examples in the runtime
    symbolic   the prover: attack and proof of a rule's instances
    instances  the bounded family of shapes and attributes
    evaluate   a graph over an algebra of elements: semantics, linear, windows, movement are its operators,
               domains and order the algebras, numbers what a float constant stands for
"""
