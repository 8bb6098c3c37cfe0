"""Roles of the rows of a data set of prompts: by a column of names, or by a function of the user's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradwatch.errors import SettingsError
from gradwatch.quantities.roles import NOBODY, UNASSIGNED, Speaker

Name = str | tuple[str, str]
RoleOf = str | Callable[[Mapping[str, Any]], Name]
USUAL = "role"


class RowRoles:
    """Reads the role of each row. `speakers` are the declared ones; a row of any other has the id -1."""

    def __init__(self, role_of: RoleOf, roles: Sequence[Name]) -> None:
        self._role_of = role_of
        self.speakers = tuple(to_speaker(role) for role in roles)
        self._ids = {speaker: index for index, speaker in enumerate(self.speakers)}

    def speaker(self, row: Mapping[str, Any]) -> Speaker:
        """Who is asked in this row."""
        given = row.get(self._role_of) if isinstance(self._role_of, str) else self._role_of(row)
        return UNASSIGNED if given is None else to_speaker(given)

    def id(self, speaker: Speaker) -> int:
        """A speaker's place among the declared ones, -1 where it has none."""
        return self._ids.get(speaker, NOBODY)


def row_roles(dataset: Any, role_of: RoleOf | None, roles: Sequence[Name] | None) -> RowRoles:
    """The roles of a training's rows; none at all where neither roles nor a column `role` are there.

    `roles` None takes every name in the column, in the order of their rows; with no roles, none is told apart.

    Raises SettingsError where the column is missing, holds other names than `roles`, or roles are needed and not given: a function,
    or data that can only be iterated, does not tell them.
    """
    columns = getattr(dataset, "column_names", None)
    if role_of is None and roles is None and USUAL not in (columns or ()):
        roles = ()
    role_of = USUAL if role_of is None else role_of
    if roles is not None and not roles:
        return RowRoles(role_of, ())
    if isinstance(role_of, str) and columns is not None and role_of not in columns:
        raise SettingsError(
            f"the training data has no column {role_of!r} with the roles, only {', '.join(columns)}: name it with role_of="
        )
    found = _found(dataset, role_of)
    if roles is None and (found is None or not isinstance(role_of, str)):
        raise SettingsError("the roles cannot be read from the training data beforehand: declare them with roles=[...]")
    declared = RowRoles(role_of, roles if roles is not None else found or ())
    unknown = [speaker for speaker in map(to_speaker, found or ()) if declared.id(speaker) == NOBODY]
    if unknown:
        raise SettingsError(
            f"the training data holds the role {_shown(unknown[0])}, which roles= does not declare: "
            f"{', '.join(map(_shown, declared.speakers))}"
        )
    return declared


def to_speaker(name: Name) -> Speaker:
    """The speaker of a role's name, or of (role, agent). Raises SettingsError for anything else."""
    parts = (name, "") if isinstance(name, str) else tuple(name) if isinstance(name, tuple | list) else ()
    if len(parts) != 2 or not all(isinstance(part, str) for part in parts) or not parts[0]:
        raise SettingsError(f"role {name!r}: give a role's name, or a pair (role, agent)")
    return Speaker(*parts)


def _found(dataset: Any, role_of: RoleOf) -> list[Name] | None:
    """The roles of all rows of a column, or of the first row, as far as they can be seen beforehand."""
    if isinstance(role_of, str):
        return [name for name in dataset.unique(role_of) if name is not None] if hasattr(dataset, "unique") else None
    return [role_of(dataset[0])] if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__") and len(dataset) else None


def _shown(speaker: Speaker) -> str:
    return repr(f"{speaker.role}/{speaker.agent}" if speaker.agent else speaker.role)
