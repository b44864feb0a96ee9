"""Many values of a kind by columns: a list for each field, in the place of an object for each value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, ClassVar, Self, TypeVar, get_type_hints, overload

Row = TypeVar("Row", bound=tuple[Any, ...])
Columns = TypeVar("Columns", bound="Batch[Any]")


class Batch(Sequence[Row]):  # see 0062
    """Many timers of a kind, as columns of a `ROW`: all lists are equally long.

    Calls bring hundreds, and most of what happens to them happens to all of them in the same way. An object
    for each would be most of the work.
    """

    __slots__: tuple[str, ...] = ()
    ROW: ClassVar[Any]
    timer_ids: list[str]
    DEFAULTS: ClassVar[dict[str, Any]]
    """The default of a row's field, by the name of its column."""
    READ: ClassVar[Callable[[Any], tuple[list[Any], ...]]]
    """Returns the lists, in the order of the fields."""

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Self:
        """Return the same rows by columns."""
        if isinstance(rows, cls):
            return rows
        columns = list(map(list, zip(*rows, strict=True)))
        return cls(*(columns or ([] for _ in cls.__slots__)))

    @classmethod
    def filled(cls, timer_ids: list[str], **columns: list[Any]) -> Self:
        """Return these columns, and for each one that is not given the default of its field."""
        columns["timer_ids"], count = timer_ids, len(timer_ids)
        for name, default in cls.DEFAULTS.items():
            if name not in columns:
                columns[name] = [default] * count
        return cls(**columns)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Concatenate several."""
        if len(parts) == 1:
            return parts[0]
        columns = zip(*(cls.READ(part) for part in parts), strict=True)
        return cls(*(list(chain.from_iterable(column)) for column in columns))

    def picked(self, pick: Callable[[list[Any]], list[Any]]) -> Self:
        """Return some of the rows; `pick` takes theirs from each column."""
        return type(self)(*map(pick, type(self).READ(self)))

    def only(self, places: Sequence[int]) -> Self:
        """Return the rows at these places."""
        return self.picked(at(places))

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> Self: ...

    def __getitem__(self, place: int | slice) -> Row | Self:
        """Return one row, or some of the rows."""
        if isinstance(place, slice):
            return self.picked(itemgetter(place))
        row: Row = self.ROW._make([column[place] for column in type(self).READ(self)])
        return row

    def __iter__(self) -> Iterator[Row]:
        return map(self.ROW._make, zip(*type(self).READ(self), strict=True))

    def __len__(self) -> int:
        return len(self.timer_ids)


def columns_of(row: type[tuple[Any, ...]]) -> Callable[[type[Columns]], type[Columns]]:
    """Make a dataclass the columns of a row.

    Its fields are the row's, in their order and each in a list, by the same name or its plural. Raises
    `TypeError` otherwise, as the module is imported: so a field can't be in one of the two only.
    """

    def check(columns: type[Columns]) -> type[Columns]:
        kinds, lists = get_type_hints(row), get_type_hints(columns)
        names = columns.__slots__
        if len(names) != len(kinds):
            raise TypeError(f"{columns.__name__} has {len(names)} columns for {len(kinds)} fields")
        for name, (field, kind) in zip(names, kinds.items(), strict=True):
            if name not in (field, f"{field}s") or lists[name] != list[kind]:  # type: ignore[valid-type]
                raise TypeError(f"{columns.__name__}.{name} is not the column of {row.__name__}.{field}")
        columns.ROW, columns.READ = row, attrgetter(*names)
        defaults = columns.ROW._field_defaults
        fields = zip(names, kinds, strict=True)
        columns.DEFAULTS = {name: defaults[field] for name, field in fields if field in defaults}
        return columns

    return check


def at(places: Sequence[int]) -> Callable[[Sequence[Any]], list[Any]]:
    """Return what picks the values at these places from a column."""
    return lambda column: [column[place] for place in places]
