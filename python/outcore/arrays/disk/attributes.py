"""
Attributes of an array or a group on disk, as a mutable mapping.

Problem: users write ``a.attrs["units"] = "K"``, one attribute after another, perhaps from several
processes, but the formats replace their metadata as a whole.
Approach: a mapping over the attributes that the format has read. A change names the attributes to set
and to remove; the format applies it to the current contents of the file in one atomic step.

Invariants: attributes that a change does not name are preserved, including those that other processes
have set in the meantime. An attribute that reads as set is durable.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Protocol

from outcore.errors import UsageError

__all__ = ["Attributes"]


class _Description(Protocol):
    """Description by a format."""

    @property
    def attrs(self) -> Mapping[str, Any]: ...


class _Owner(Protocol):
    """Array or group."""

    @property
    def path(self) -> str: ...
    @property
    def info(self) -> _Description: ...


class Attributes(MutableMapping[str, Any]):
    """
    User attributes of an array or a group on disk: ``a.attrs``.

    Reading works in any mode. Each change is a separate durable change of the file; `update` combines
    several changes into one.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.create("field.zarr", (10, 10), "f4", attrs={"units": "K"})
    >>> a.attrs["long_name"] = "temperature"
    >>> a.attrs.update(units="degC", offset=273.15)
    >>> del a.attrs["offset"]
    >>> dict(a.attrs)
    {'units': 'degC', 'long_name': 'temperature'}
    """

    def __init__(
        self, owner: _Owner, change: Callable[[Mapping[str, Any], Collection[str]], None]
    ) -> None:
        self._owner, self._change_file = owner, change

    def _read_current(self) -> Mapping[str, Any]:
        return self._owner.info.attrs

    def __getitem__(self, name: str) -> Any:
        # Return a copy: changing a list in memory would look like changing the attribute.
        return copy.deepcopy(self._read_current()[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._read_current())

    def __len__(self) -> int:
        return len(self._read_current())

    def __setitem__(self, name: str, value: Any) -> None:
        self._change({name: value})

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self._change(drop=[name])

    def update(  # type: ignore[override]  # all forms of dict.update, in one signature
        self, other: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), /, **more: Any
    ) -> None:
        """
        Set several attributes in one change of the file.

        Parameters
        ----------
        other
            Names and values, as a mapping or pairs.
        more
            Names and values, as keywords.

        Examples
        --------
        >>> import outcore
        >>> a = outcore.create("field.zarr", 10, "f4")
        >>> a.attrs.update({"long name": "temperature"}, units="K")
        >>> a.attrs
        {'long name': 'temperature', 'units': 'K'}
        """
        changes = dict(other, **more)
        if changes:
            self._change(changes)

    def clear(self) -> None:
        """
        Remove all attributes in one change of the file.

        Examples
        --------
        >>> import outcore
        >>> a = outcore.create("field.zarr", 10, "f4", attrs={"units": "K"})
        >>> a.attrs.clear()
        >>> len(a.attrs)
        0
        """
        names = list(self)
        if names:
            self._change(drop=names)

    def _change(self, changes: Mapping[str, Any] | None = None, drop: Iterable[str] = ()) -> None:
        for name in changes or ():
            if not isinstance(name, str):
                raise UsageError(
                    f"{self._owner.path!r}: {name!r} is not a name of an attribute; pass text",
                    code="bad-attribute",
                    path=self._owner.path,
                )
        self._change_file(changes or {}, list(drop))

    def __repr__(self) -> str:
        return repr(dict(self._read_current()))
