"""Classes of `lazyclass` behave as the standard library's: each test runs on both."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, asdict, field, fields, replace
from typing import ClassVar, Generic, TypeVar

import pytest

import lazyclass

T = TypeVar("T")


def classes(dataclass):
    @dataclass(frozen=True, slots=True)
    class Point:
        """A place."""

        x: int
        y: int = 2
        tags: list[str] = field(default_factory=list, compare=False)
        seen: int = field(default=7, init=False, repr=False)
        marks: list[int] = field(default_factory=list, init=False, repr=False, compare=False)
        UNIT: ClassVar[str] = "m"

    @dataclass(frozen=True, slots=True)
    class Named(Point):
        name: str = "?"

        def __post_init__(self):
            object.__setattr__(self, "name", self.name.upper())

    @dataclass(slots=True)
    class Counter(Generic[T]):
        of: T
        count: int = 0

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        a: int
        b: int = 1

    @dataclass(slots=True, eq=False)
    class Task:
        n: int

    @dataclass(frozen=True, slots=True, repr=False)
    class Odd:
        n: int

        def __eq__(self, other):
            return isinstance(other, Odd) and self.n % 2 == other.n % 2

    return Point, Named, Counter, Options, Task, Odd


OURS, THEIRS = classes(lazyclass.dataclass), classes(dataclasses.dataclass)
Point, Named, Counter, Options, Task, Odd = OURS
BOTH = pytest.mark.parametrize("kinds", [OURS, THEIRS], ids=["ours", "theirs"])


@lazyclass.dataclass(frozen=True, slots=True)
class Sent:
    an: int
    payload: bytes = b""


@BOTH
def test_instances(kinds):
    point, named, counter, options, task, odd = kinds
    assert (point(1).x, point(1).y, point(1, 3).y, point(1).seen, point.UNIT) == (1, 2, 3, 7, "m")
    assert point(1).tags is not point(1).tags
    assert point(1).marks == []
    assert point(1).marks is not point(1).marks
    assert named(1, name="a").name == "A"
    assert repr(named(1)).endswith("Named(x=1, y=2, tags=[], name='?')")
    assert point(1) == point(1, tags=["a"])
    assert point(1) != point(2)
    assert point(1) != named(1)
    assert hash(point(1)) == hash(point(1))
    assert counter(3) == counter(of=3, count=0)
    assert task(1) != task(1)
    assert odd(1) == odd(3)
    assert options(a=1).b == 1


@BOTH
def test_what_is_refused(kinds):
    point, _, counter, options, _, _ = kinds
    place = point(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        place.x = 3
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del place.x
    with pytest.raises(AttributeError):
        counter(3).other = 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(counter(3))
    with pytest.raises(TypeError, match="positional"):
        options(1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        point()


@BOTH
def test_the_library_knows_them(kinds):
    point, named, _, _, _, odd = kinds
    assert [each.name for each in fields(named)] == ["x", "y", "tags", "seen", "marks", "name"]
    assert asdict(point(1)) == {"x": 1, "y": 2, "tags": [], "seen": 7, "marks": []}
    assert replace(point(1), y=5) == point(1, 5)
    assert str(inspect.signature(point)) == "(x: 'int', y: 'int' = 2, tags: 'list[str]' = <factory>) -> None"
    assert (point.__doc__, named.__match_args__) == ("A place.", ("x", "y", "tags", "name"))
    assert dataclasses.is_dataclass(odd)
    match named(1, 4):
        case named(x, y):
            assert (x, y) == (1, 4)


def test_they_can_be_pickled_and_inherited_from():
    assert pickle.loads(pickle.dumps(Sent(3, b"a"))) == Sent(3, b"a")

    @dataclasses.dataclass(frozen=True, slots=True)
    class More(Sent):
        late: bool = False

    assert More(3, b"", True).late


def test_methods_are_compiled_when_they_are_needed():
    @lazyclass.dataclass(frozen=True, slots=True)
    class Fresh:
        n: int

    assert not inspect.isfunction(vars(Fresh)["__init__"])
    Fresh(1)
    assert inspect.isfunction(vars(Fresh)["__init__"])
    assert not inspect.isfunction(vars(Fresh)["__eq__"])


def test_a_class_without_slots_is_refused():
    with pytest.raises(TypeError, match="without slots"):
        lazyclass.dataclass(slots=False)
