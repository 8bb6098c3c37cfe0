"""The speakers of a watched model: declared at the start, or learned from the first calls."""

from __future__ import annotations

from collections.abc import Sequence

from gradwatch.errors import SettingsError
from gradwatch.quantities.roles import UNASSIGNED, Speaker

Name = str | tuple[str, str]
ROOM = 16  # speakers that engines leave room for where they are not declared, the unassigned one included


class Cast:
    """Names of roles, or of (role, agent), each at its index; the unassigned speaker comes last, at `size` - 1.

    Declared names are the only ones. Otherwise the first list of names that is used becomes declared, or names come one by one.
    """

    def __init__(self, names: Sequence[Name] = (), must_be_declared: bool = False) -> None:
        if isinstance(names, str):
            raise SettingsError(f"roles={names!r}: give a list of names, such as [{names!r}]")
        self._names = [_speaker(name) for name in names]
        self._must_be_declared = must_be_declared
        self.is_declared = bool(names)
        _refuse_doubles(self._names)

    @property
    def size(self) -> int:
        """The number of speakers that engines measure."""
        return len(self._names) + 1 if self.is_declared else ROOM

    @property
    def speakers(self) -> tuple[Speaker, ...]:
        """Every speaker at its index; those of whom there are none yet, and the last, are unassigned."""
        return (*self._names, *[UNASSIGNED] * (self.size - len(self._names)))

    def declare(self, names: Sequence[Name] | None) -> None:
        """The names of one call: they have to be the declared ones, and become so where none were."""
        if names is None:
            if not self.is_declared:
                raise SettingsError("roles(ids) without names: give names=[...] here, or roles=[...] to watch()")
            return
        given = [_speaker(name) for name in names]
        if self.is_declared and given != self._names:
            raise SettingsError(f"names {_show(given)}: this model is watched with {_show(self._names)}; ids index those")
        if not self.is_declared:
            self._refuse_undeclared()
            if self._names and given[: len(self._names)] != self._names:
                raise SettingsError(
                    f"names {_show(given)} beside role() of {_show(self._names)}: declare them all in watch(roles=...)"
                )
            _refuse_doubles(given)
            self._names, self.is_declared = given, True

    def index(self, role: str, agent: str) -> int:
        """The index of one speaker; learned where none are declared."""
        wanted = _speaker((role, agent))
        if wanted in self._names:
            return self._names.index(wanted)
        if self.is_declared:
            raise SettingsError(f"role {_show([wanted])} is not among {_show(self._names)}, which watch(roles=...) declares")
        self._refuse_undeclared()
        if len(self._names) >= ROOM - 1:
            raise SettingsError(f"more than {ROOM - 1} roles, the last {_show([wanted])}: declare them all in watch(roles=...)")
        self._names.append(wanted)
        return len(self._names) - 1

    def _refuse_undeclared(self) -> None:
        if self._must_be_declared:
            raise SettingsError("several processes share this model's gradient: declare its roles in watch(..., roles=[...])")


def _speaker(name: Name) -> Speaker:
    parts = (name, "") if isinstance(name, str) else tuple(name) if isinstance(name, Sequence) else ()
    if len(parts) != 2 or not all(isinstance(part, str) for part in parts) or not parts[0]:
        raise SettingsError(f"role {name!r}: give a role's name, or a pair (role, agent)")
    return Speaker(*parts)


def _refuse_doubles(names: Sequence[Speaker]) -> None:
    doubles = {name for name in names if names.count(name) > 1}
    if doubles:
        raise SettingsError(f"names hold {_show(sorted(doubles))} more than once: name instances of a role (role, agent)")


def _show(names: Sequence[Speaker]) -> str:
    return ", ".join(repr(f"{one.role}/{one.agent}" if one.agent else one.role) for one in names)
