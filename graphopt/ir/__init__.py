"""The internal graph: immutable, structurally hashed, edited in time proportional to what changes.

In reading order: :mod:`dtypes` (the table of element types), :mod:`types` (of values: dtypes and shapes), :mod:`ops` (what is known of an operator), :mod:`graph` (nodes,
values, the graph), :mod:`infer` (types of new values), :mod:`edit` (one rewrite), :mod:`constants` (the bytes of
lazy constants), :mod:`text` (how nodes are printed).
"""
