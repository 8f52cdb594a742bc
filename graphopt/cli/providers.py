"""``graphopt providers``: on what this machine can run models, and what to install for the rest."""

from __future__ import annotations

import dataclasses

from graphopt.cli import options, paths
from graphopt.cli.screen import console, each, facts, present, table
from graphopt.wording import one_line

_STATES = {"works": "works", "fails": "installed, does not start", "absent": "not installed"}


def providers(json: options.Json = None) -> None:
    """List the execution providers: which start on this machine, and what to install for the others.

    Each one that is installed is tried with a small model. Exits with 2 if no package of ONNX Runtime is installed, or
    two of them that overwrite each other.
    """
    paths.report_file(json, {})

    from graphopt.cli.progress import Waiting
    from graphopt.errors import RuntimePackageError

    with Waiting("trying the providers"):
        from graphopt.runtime import packages
        from graphopt.runtime.survey import survey

        installed = packages.installed()
        missing: RuntimePackageError | None = None
        try:
            from graphopt.runtime import ort  # noqa: F401
        except RuntimePackageError as error:
            if installed:
                raise
            missing = error
        entries = survey()
    document = {
        "schema": "graphopt.providers/1",
        "packages": [{"name": package.name, "version": package.version} for package in installed],
        "providers": [dataclasses.asdict(entry) for entry in entries],
    }

    def show() -> None:
        screen = console(stderr=False)
        rows = table("provider", "", "from", "device", whole=True)
        for entry in entries:
            rows.add_row(entry.name, _STATES[entry.state], entry.package, one_line(entry.device))
        screen.print(rows)
        notes = facts()
        for entry in entries:
            if entry.note:
                notes.add_row(entry.name, one_line(entry.note))
        if notes.row_count:
            screen.print()
            screen.print(notes)

    def refuse() -> None:
        if missing is not None:
            raise missing

    each(lambda: present(show, document, json), refuse)
