"""ONNX in and out.

:mod:`wire` cuts the weights out of a serialised model and puts them back without parsing them, :mod:`load` turns a
model into a :class:`graphopt.ir.graph.Graph` (:mod:`read` parses and checks it, :mod:`declared` and :mod:`initializers` say what its values are,
:mod:`build` makes the nodes), :mod:`emit` turns a graph back into nodes and initializers (:mod:`fold` says which constants), :mod:`save`
writes the file. :mod:`bodies`, :mod:`inside` and :mod:`branches` are about graphs within a graph.
"""
