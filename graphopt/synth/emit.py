"""Write generated rules as a pack: YAML files by group of operators, and the evidence beside them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from graphopt.errors import UsageError
from graphopt.files import write_texts
from graphopt.prover.evidence import evidence_text
from graphopt.rewrite.library import LOCK
from graphopt.rewrite.schema import Rule
from graphopt.synth.draft import one_rule
from graphopt.synth.generate import Kept
from graphopt.synth.names import family, formula, names
from graphopt.synth.prune import Rewriter

HEADER = "# Made by `graphopt rules generate`; what is edited here is lost when it runs again.\n"


def check_folder(folder: Path) -> None:
    """See that a folder holds nothing that writing a pack would destroy.

    Raises:
        UsageError: It is no folder, or rules lie there that were not generated.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder")
    for file in sorted(folder.glob("*.y*ml")) if folder.exists() else ():
        if not file.read_text(encoding="utf-8", errors="replace").startswith(HEADER):
            raise UsageError(f"{file} holds rules that were not generated", "choose another folder with --out")


def write_pack(folder: Path, kept: Sequence[Kept], library: Sequence[Rule] = ()) -> list[str]:
    """Write rules and their evidence, in place of what was generated there before.

    No file takes its place before all are complete, and a kill just then leaves rules that have no evidence and don't load: the run is
    not finished, and the next writes them again.

    Args:
        folder: Where to; made if it does not exist.
        kept: The rules.
        library: Hand-written rules: names are not taken twice, and a rule that follows from them says so.

    Returns:
        The ids.

    Raises:
        UsageError: See :func:`check_folder`.
    """
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rewriter = Rewriter(library)
    named = _named(kept, {rule.id for rule in library})
    files: dict[str, list[str]] = defaultdict(list)
    verdicts = []
    for id, rule in sorted(named.items()):
        known = [rewriter.derives(p) for p in rule.pairs]
        doc = formula(rule.pairs[0], rule.ops)
        if all(known):
            doc += f". The library has {' and '.join(dict.fromkeys(known[0]))}"
        text = rule.text.replace("id: ID", f"id: {id}", 1).replace("doc: DOC", f"doc: {doc}.", 1)
        files[family(rule.pairs[0])].append(text)
        verdicts.append(replace(rule.verdict, rule=id, hash=one_rule(text).hash))
    made = {}
    for group, texts in files.items():
        head = f"{HEADER}family: generated-{group}\ndoc: Laws of {group} that were found by enumeration.\nrules:\n"
        made[folder / f"{group}.yaml"] = head + "\n".join(texts)
    evidence = evidence_text(folder / LOCK, verdicts, set(named))
    write_texts({**made, folder / LOCK: evidence} if evidence else made)
    for stale in set(folder.glob("*.yaml")) - set(made):
        stale.unlink()
    return list(named)


def _named(kept: Sequence[Kept], taken: Collection[str]) -> Mapping[str, Kept]:
    """The rules by id. Those that read alike say more; what still reads alike is numbered."""
    able = [list(names(rule.pairs[0], rule.ops)) for rule in kept]
    plain = Counter(found[0] for found in able)
    made: dict[str, Kept] = {}
    for rule, found in zip(kept, able, strict=True):
        wanted = found[1:] if plain[found[0]] > 1 else found
        id = next((name for name in wanted if name not in made and name not in taken), "")
        number = 1
        while not id or id in made or id in taken:
            number += 1
            id = f"{found[-1]}-{number}"
        made[id] = rule
    return made
