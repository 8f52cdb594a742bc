"""The walk of :func:`graphopt.optimize`, stage by stage.

``prepare`` makes a :class:`~graphopt.pipeline.context.Context` of what the caller said; ``search``, ``verify``, ``judge`` and ``write``
are functions of it and of what the stage before returned. ``opening`` is shared with whatever else opens a user's model.
"""
