"""Training agents: needs the ``train`` extra. Nothing that `graphopt optimize` runs imports it.

In the order in which training flows through the modules:

- ``training_run``, ``learners``: what to train and how; the algorithms by name;
- ``environments``, ``env``: models, rules and prices loaded, and prices that stay as they are; the same for Gymnasium;
- ``encoder``, ``controller``, ``world_model``: the networks (torch); ``pretrain`` trains the encoder by itself;
- ``rollout``, ``replay_buffer``: episodes on an executor, and what a world model learns from them;
- ``ppo``; ``dreamer``, ``dream``: the algorithms;
- ``train``, ``checkpoint``, ``onnx_export``: the loop, what is kept, the agent as ONNX.
"""
