"""Steps a second of the environment, with prices that are known already.

    python -m tests.bench.env [NAME ...] [--steps 2000] [--places class site]

Random legal actions without STOP, so that every episode uses up its budget; with ``class`` each rewrites every equal place. The first pass fills the price table; the clock sees the second, with other
seeds and the memory of earlier episodes cleared. The time is the processor's, so that a busy machine matters less.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

from graphopt.cost.store import Store
from graphopt.ir.memo import collector_paused
from graphopt.rl.episode import Episode
from graphopt.rl.task import Source, load_task
from graphopt.rl.task_environment import TaskEnvironment
from graphopt.rl.training.environments import open_environment

MODELS = ("squeezenet1_1", "bert_base")


def walk(environment: TaskEnvironment, steps: int, seed: int) -> tuple[int, int]:
    """Steps made, and episodes."""
    rng, made, episodes = np.random.default_rng(seed), 0, 0
    while made < steps:
        episode = Episode(environment, rng)
        episodes += 1
        while not episode.result.done:
            legal = np.flatnonzero(episode.observation.mask[1:])
            episode.step(1 + int(rng.choice(legal)) if len(legal) else 0)
            made += 1
    return made, episodes


def main() -> None:
    """Print a line for each model and kind of action."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=MODELS)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--places", nargs="+", default=["class", "site"])
    given = parser.parse_args()
    print("model                 places  nodes  actions  steps  episodes  steps/s")
    for name in given.names:
        for places in given.places:
            task = load_task("cost")
            task = replace(task, actions=replace(task.actions, places=places))
            with Store() as store, collector_paused():
                environment = open_environment(task, Source(name), store)
                walk(environment, given.steps, 1)
                environment.forget()
                begin = time.process_time()
                made, episodes = walk(environment, given.steps, 2)
                seconds = time.process_time() - begin
            seen = environment.root.observation
            print(
                f"{name:20}  {places:6}  {len(seen.nodes):5}  {len(seen.rules):7}  {made:5}  {episodes:8}  {made / seconds:7.0f}"
            )


if __name__ == "__main__":
    main()
