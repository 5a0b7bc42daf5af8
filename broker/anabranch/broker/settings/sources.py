"""The sources of settings: a TOML file, overruled by the environment, overruled by flags.

One reader serves every process that has settings, a node and a proxy. It knows them only by their
model. It is pure but for reading the file, and reports every problem at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from anabranch.broker.settings.environment import from_environment
from anabranch.broker.settings.fields import InvalidSettingsError, SettingFields
from anabranch.core.errors import AnabranchError, InvalidInputError
from anabranch.core.quantities import durations, plain_form, without_unit

_ModelT = TypeVar("_ModelT", bound=SettingFields)
# Settings that are fine alone but not together: the names involved and what to do.
Contradictions = Callable[[_ModelT], Iterable[tuple[tuple[str, ...], str]]]


class SettingsError(AnabranchError):
    """Settings that cannot be used; `problems` has a sentence for each, with its remedy."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__(
            "the settings cannot be used; correct them:\n" + "\n".join(f"  {p}" for p in problems)
        )


def written_name(model: type[SettingFields], field: str) -> str:
    """Returns people's name of a field of the settings."""
    return model.fields[field].name


def names_of(model: type[SettingFields]) -> tuple[str, ...]:
    """The names of all settings, in the order of the model."""
    return tuple(each.name for each in model.fields.values())


def read_settings(
    model: type[_ModelT],
    file: Path | None,
    environment: Mapping[str, str],
    overrides: Mapping[str, object],
    contradictions: Contradictions[_ModelT],
) -> _ModelT:
    """Settings from all three sources; `overrides` are flags, by their camelCase names.

    Raises SettingsError with every problem found.
    """
    names = names_of(model)
    spellings = (*names, *map(without_unit, durations(names)))
    known = frozenset(names)
    problems: list[str] = []
    given: dict[str, object] = {}
    origin: dict[str, str] = {}

    def near(name: str, prefix: str = "") -> str:
        return near_names(names, name, prefix)

    sources = (
        (str(file), _from_file(file, problems)),
        ("environment", from_environment(environment, spellings, problems, near)),
        ("flag", overrides),
    )
    for source, values in sources:
        here: set[str] = set()
        for written, said in values.items():
            try:
                name, value = plain_form(written, said, known)
            except InvalidInputError as error:
                problems.append(f"{written} ({source}): {error}")
                continue
            if name not in known:
                problems.append(f"{name} ({source}) is no setting{near(name)}")
                continue
            if name in here:
                problems.append(f"{name} ({source}) is given twice, by either of its names")
            here.add(name)
            given[name], origin[name] = value, source
    settings, invalid = _validated(model, given, origin, problems)
    for involved, problem in contradictions(settings):
        if invalid.isdisjoint(involved):
            problems.append(problem)
    if problems:
        raise SettingsError(problems)
    return settings


def _from_file(file: Path | None, problems: list[str]) -> Mapping[str, object]:
    if file is None:
        return {}
    import tomllib  # takes memory, which a process without such a file need not have

    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        problems.append(f"the settings file {file} cannot be read: {error.strerror}")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        problems.append(f"the settings file {file} is not TOML: {error}")
    return {}


def near_names(
    names: Iterable[str], name: str, prefix: str = "", otherwise: str = "; remove it"
) -> str:
    """Returns the words behind an unknown name: the names that are like it, if there are any."""
    import difflib  # takes memory, which a node whose settings are right need not have

    plain = {known.lower(): known for known in names}
    wanted = name.lower().replace("_", "").replace("-", "")
    matches = difflib.get_close_matches(wanted, plain, n=3, cutoff=0.6)
    if not matches:
        return otherwise
    return "; did you mean " + " or ".join(prefix + plain[match] for match in matches) + "?"


def _validated(
    model: type[_ModelT],
    given: Mapping[str, object],
    origin: Mapping[str, str],
    problems: list[str],
) -> tuple[_ModelT, set[str]]:
    """Returns the settings with defaults in place of invalid ones, and the names of the invalid
    ones.

    A value may be a secret by mistake, and is then not told.
    """
    untold = {each.name for each in model.fields.values() if not each.is_told}
    try:
        return model.of(given), set()
    except InvalidSettingsError as error:
        for name, why in error.faults.items():
            said = "" if name in untold else f" is {given[name]!r}"
            problems.append(f"{name} ({origin[name]}){said}: {why}")
        valid = {name: value for name, value in given.items() if name not in error.faults}
        return model.of(valid), set(error.faults)
