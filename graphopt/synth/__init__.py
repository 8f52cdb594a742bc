"""Rules that nobody wrote: enumerate graphs, find equal ones, prove, generalise and prune.

``worlds`` and ``operators`` say what is enumerated, ``bank`` enumerates and fingerprints, ``pairs`` takes equal graphs
together, ``draft``, ``replacement``, ``conditions`` and ``generalise`` make rules of them, ``graphs`` chooses among these,
``emit`` writes them. ``generate`` is the whole run, ``work`` the parts of it that other processes do, ``journal`` what lets it
go on after it was killed.
"""
