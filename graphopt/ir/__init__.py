"""The internal graph: immutable, structurally hashed, edited in time proportional to what changes.

In reading order: :mod:`types` (element types, shapes), :mod:`ops` and :mod:`schema` (what is known of an operator), :mod:`graph` (nodes,
values, the graph), :mod:`infer` (types of new values; :mod:`doubts`, where ONNX errs), :mod:`content` (shape arithmetic), :mod:`edit` (one
rewrite; :mod:`ranks`, :mod:`agreement` and :mod:`moved` are parts of it), :mod:`constants` (the bytes of lazy constants),
:mod:`simplify` (what the engine does before any rule), :mod:`text` (how nodes are printed).
"""
