"""ONNX in and out.

:mod:`wire` cuts the weights out of a serialised model and puts them back without parsing them, :mod:`load` turns a
model into a :class:`graphopt.ir.graph.Graph`, :mod:`emit` turns a graph back into nodes and initializers, :mod:`save`
writes the file.
"""
