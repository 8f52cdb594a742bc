"""Do two models compute the same function?

Import the modules directly; this file stays empty so that asking for one does not load the others.

    numeric    two whole models on the same inputs
    reference  what the original does, and how far another may be off
    compare    two values under a tolerance that follows their scale
    operands   which elements operators take, for operands that are inputs
    ranges     legal ranges of integer inputs, read off a graph
    words      words and categories that encoders know, read off the graph
    sizes      sizes of symbols, read off a graph
"""
