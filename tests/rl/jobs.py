"""What the tests run in processes of their own."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path


def killed(out: str, algorithm: str, iteration: int) -> None:
    """Train on the toy and end with SIGKILL after an iteration; a checkpoint is written after each."""
    from graphopt.rl.task import load_task
    from graphopt.rl.training import train
    from graphopt.rl.training.training_run import Run, Status

    train.CHECKPOINT_S = -1.0

    def report(status: Status) -> None:
        if status.iteration == iteration:
            os.kill(os.getpid(), signal.SIGKILL)

    task = load_task(Path(__file__).parent / "toy" / "toy.yaml")
    train.train(Run(task, Path(out), algorithm, preset="debug", steps=200), report)


if __name__ == "__main__":
    killed(sys.argv[1], sys.argv[2], int(sys.argv[3]))
