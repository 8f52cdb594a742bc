"""Settings, where they come from, and where graphopt keeps its files.

A setting is looked up in four places, the first that has it wins:

    1. the command line                  ``--threads 4``
    2. the environment                   ``GRAPHOPT_THREADS=4``
    3. the nearest ``graphopt.toml`` or ``pyproject.toml`` with ``[tool.graphopt]``, going up from the current folder:
       there the profile that ``--profile`` or ``GRAPHOPT_PROFILE`` names, then what stands outside of profiles
    4. the default in `Settings`

A value replaces the whole value of the place below it: lists and tables are not merged.
"""

from __future__ import annotations

import os
import tomllib
import warnings
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from graphopt.documents import decode
from graphopt.errors import GraphoptError, UnknownNameError, UsageError, expect
from graphopt.kinds import (
    ARGUMENTS,
    PROVIDERS,
    checked,
    parse_dim,
    parse_input_shape,
    parse_provider_option,
    provider_name,
)
from graphopt.settings import DECLARED, ENV_PREFIX, Settings

__all__ = [
    "PROVIDERS", "Settings", "agents_dir", "cache_dir", "changed_settings", "check_arguments", "load_settings",
    "name_unknown", "nearest_file", "parse_dim", "parse_input_shape", "parse_provider_option", "provider_name", "rules_dir",
]  # fmt: skip

SECTION, PROFILES = "tool.graphopt", "profiles"
FILES = ("graphopt.toml", "pyproject.toml")
"""Files of settings, in the order in which they are looked for in a folder."""
STORE = "kernels.sqlite"
"""The store of kernel times in :func:`cache_dir`."""
OTHER_VARIABLES = frozenset(
    ENV_PREFIX + name
    for name in (
        "BLOCK_SIZE",
        "BROWSER",
        "BROWSER_DIR",
        "CACHE_DIR",
        "DEBUG",
        "PROFILE",
        "RIVALS",
        "SCREENSHOTS",
        "ZOO_DIR",
    )
)
"""Variables that are no settings: places, and what tests and developers use."""


def load_settings(
    given: Mapping[str, Any] | None = None,
    *,
    profile: str | None = None,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Merge the settings of the command line, the environment and the nearest file of settings.

    Args:
        given: What the command line said, by field of `Settings`; None means not said.
        profile: Which profile of the file to use besides; ``GRAPHOPT_PROFILE`` if not given.
        cwd: Where to start looking for the file; the current folder if not given.
        environ: The environment; ``os.environ`` if not given.

    Raises:
        UsageError: A value is wrong; the message names the file and key, the variable or the option.
        UnknownNameError: There is no such profile.
    """
    env = os.environ if environ is None else environ
    merged: dict[str, Any] = {}
    file, profile = nearest_file(cwd or Path.cwd()), profile or env.get(ENV_PREFIX + "PROFILE") or None
    if file is not None:
        merged |= _from_file(file, profile)
    elif profile is not None:
        raise UsageError(f"profile {profile!r}: no {' or '.join(FILES)} with settings here or above")
    for name, declared in DECLARED.items():
        variable = ENV_PREFIX + name.upper()
        text = env.get(variable, "")
        if text:
            merged[name] = checked(variable, declared.kind, text, from_text=True)
    name_unknown(env)
    for name, value in (given or {}).items():
        if value is not None:
            merged[name] = checked("--" + name.replace("_", "-"), DECLARED[name].kind, value)
    return Settings(**merged)


class SettingWarning(UserWarning):
    """A setting that has no effect."""


def name_unknown(env: Mapping[str, str]) -> None:
    """Warn of variables that look like settings and are none: a misspelt one would be passed over in silence.

    Args:
        env: The environment.
    """
    known = {*OTHER_VARIABLES, *(ENV_PREFIX + name.upper() for name in DECLARED)}
    for variable in sorted(env):
        if variable.startswith(ENV_PREFIX) and variable not in known and env[variable]:
            unknown = UnknownNameError("variable", variable, known)
            warnings.warn(f"{unknown}, which has no effect: {unknown.hint}", SettingWarning, stacklevel=3)


def check_arguments(**given: Any) -> dict[str, Any]:
    """Hold arguments of a function against what they, or the settings of their names, may be.

    Args:
        given: Arguments by name; None stands for what was not given.

    Returns:
        Those that were given, of the types that `Settings` has them in.

    Raises:
        UsageError: A value is wrong; the message begins with the argument's name.
    """
    return {
        name: checked(name, ARGUMENTS[name] if name in ARGUMENTS else DECLARED[name].kind, value)
        for name, value in given.items()
        if value is not None
    }


def changed_settings(base: Settings | None, changes: Mapping[str, Any]) -> Settings:
    """Some settings with other values here and there.

    Args:
        base: The settings; the defaults by default.
        changes: Values by name; None stands for the default.

    Raises:
        UsageError: A value is wrong, or there is no such setting; the message names it.
    """
    expect("settings", base, (Settings, type(None)), "a graphopt.config.Settings")
    known = {f.name: getattr(base or Settings(), f.name) for f in fields(Settings)}
    for name in changes:
        if name not in known:
            raise UnknownNameError("setting", name, known)
    if isinstance(changes.get("agent"), Path):
        changes = {**changes, "agent": str(changes["agent"])}
    return Settings(**check_arguments(**{**known, **changes}))


def nearest_file(start: Path) -> Path | None:
    """The nearest file of settings at or above `start`: ``graphopt.toml``, or ``pyproject.toml`` with ``[tool.graphopt]``; or None."""
    for folder in (start, *start.parents):
        for file in (folder / name for name in FILES):
            if file.is_file() and _table(file) is not None:
                return file
    return None


def cache_dir() -> Path:
    """Where measurements are kept: ``GRAPHOPT_CACHE_DIR``, or the platform's place for a user's caches.

    Raises:
        UsageError: The variable names the home of nobody, or there is neither the variable nor a home.
    """
    return folder_named("GRAPHOPT_CACHE_DIR") or users_cache_dir()


def folder_named(variable: str) -> Path | None:
    """The folder that a variable names; ``None`` where it is not set.

    Raises:
        UsageError: It names the home of nobody.
    """
    chosen = os.environ.get(variable)
    try:
        return Path(chosen).expanduser() if chosen else None
    except RuntimeError as error:  # it says that there is no such home
        hint = f"set {variable} to a full path"
        raise UsageError(f"{variable}: {chosen}: the home directory is not known", hint) from error


def users_cache_dir() -> Path:
    """The platform's place for a user's caches.

    Raises:
        UsageError: There is no home that it could be in.
    """
    import platformdirs  # not needed for most commands

    try:
        found = Path(platformdirs.user_cache_dir("graphopt", appauthor=False))
    except RuntimeError:  # newer versions: no home
        found = Path("~")
    if found.parts[:1] == ("~",):
        raise UsageError(
            "the home directory is not known, so there is no cache folder", "set HOME or GRAPHOPT_CACHE_DIR"
        )
    return found


def rules_dir() -> Path:
    """The folder of the rules that come with graphopt."""
    return _shipped("rules", "rules")


def agents_dir() -> Path:
    """The folder of the trained agents that come with graphopt, one in a folder of its strategy's name."""
    return _shipped("agents", "models/agents")


def _shipped(inside: str, beside: str) -> Path:
    """In a wheel such files lie inside the package, in a checkout (or an editable install of one) beside it.

    Raises:
        GraphoptError: The installation is broken: neither exists, or they lie in an archive, out of which Python can import but nothing else reads.
    """
    package = Path(__file__).resolve().parent
    # In this order: beside an installed package lie other people's packages, and one might be called "rules".
    for folder in (package / "_data" / inside, package.parent / beside):
        if folder.is_dir():
            return folder
    archive = next((place for place in package.parents if place.is_file()), None)
    if archive is not None:
        raise GraphoptError(
            f"the {inside} that come with graphopt can't be read out of {archive}", "install or unpack it"
        )
    raise GraphoptError(f"the {inside} that come with graphopt are missing", "reinstall graphopt")


def _table(file: Path) -> dict[str, Any] | None:
    """What a file says of graphopt; ``None`` for nothing."""
    own = file.name == FILES[0]
    try:
        content = file.read_bytes()
    except OSError:
        return None  # somebody else's file on the way up: none of our business
    if not own and b"graphopt" not in content.replace(b"\0", b""):  # in whatever encoding it is
        return None  # so that a broken file which is not about graphopt breaks nothing here
    try:
        found = tomllib.loads(decode(content))
    except (ValueError, RecursionError) as error:
        hint = None if own else f"graphopt reads its settings from [{SECTION}] there"
        raise UsageError(f"{file}: {error}", hint) from error
    if own:
        return found
    tool = found.get("tool")
    table = tool.get("graphopt") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{file}: {SECTION} must be a table")
    return table


def _from_file(file: Path, profile: str | None) -> dict[str, Any]:
    """The settings of a file, and of one of its profiles."""
    prefix = "" if file.name == FILES[0] else f"{SECTION}."
    table = dict(_table(file) or {})
    profiles = table.pop(PROFILES, {})
    if not (isinstance(profiles, dict) and all(isinstance(each, dict) for each in profiles.values())):
        raise UsageError(f"{file}: {prefix}{PROFILES} must be tables of settings, each by its name")
    values = _values(file, prefix, table)
    if profile is not None and profile not in profiles:
        unknown = UnknownNameError("profile", profile, profiles)
        raise UsageError(
            f"{file}: {unknown}", unknown.hint if profiles else f"write one: [{prefix}{PROFILES}.{profile}]"
        )
    # Those that are not asked for are checked as well: a mistake is found when it is made.
    found = {name: _values(file, f"{prefix}{PROFILES}.{name}.", each) for name, each in profiles.items()}
    return values | (found[profile] if profile is not None else {})


def _values(file: Path, prefix: str, table: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in DECLARED:
            unknown = UnknownNameError("setting", key, DECLARED)
            where = f"{prefix[:-1]}: " if prefix else ""
            raise UsageError(f"{file}: {where}{unknown}", unknown.hint)
        values[name] = checked(f"{file}: {prefix}{key}", DECLARED[name].kind, value)
    if "rules" in values:
        values["rules"] = tuple(_beside(file, entry) for entry in values["rules"])
    if "agent" in values:
        values["agent"] = str(file.parent / values["agent"])
    return values


def _beside(file: Path, entry: str) -> str:
    """A path in a file is meant relative to that file; a family name stays as it is."""
    is_path = "/" in entry or os.sep in entry or entry.endswith((".yaml", ".yml"))
    return str(file.parent / entry) if is_path else entry
