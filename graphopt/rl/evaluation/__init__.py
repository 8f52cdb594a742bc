"""Evaluating agents against search at equal budgets.

``protocol`` runs the stages, ``graph_runs`` strategies on one graph; ``scores`` holds what was found, ``learning_curves`` what the progress of training says.
"""
