"""Search over rewrites: :mod:`problem` (states, actions, budget, outcome), strategies such as :mod:`greedy`, and
:mod:`select`, where measurement decides which families of rewrites stay."""
