"""Search over rewrites.

:mod:`problem` has states, actions, budget and outcome; :mod:`greedy` is a strategy; :mod:`select` lets measurement decide which
families of rewrites stay, in the :mod:`arena`.
"""
