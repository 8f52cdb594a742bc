"""Is a rule true?

Import the modules directly; this file stays empty so that asking for one does not load the others.

    evidence   the verdict of a rule, and the lock file it is recorded in
    sides      both sides of a rule's examples in the runtime
    symbolic   the prover: attack and proof of a rule's instances
    instances  the bounded family of shapes and attributes
    evaluate   a graph over an algebra of elements: semantics, linear, windows, movement, resizing, spectral are its operators,
               domains and order the algebras, numbers what a float constant stands for
"""
