"""`dataclass` as in the standard library, for classes with slots, with methods that are compiled when first used.

A program defines hundreds of dataclasses when it starts and makes instances of few of them. The standard library reads
the fields and compiles five methods or so of each class at once, about a millisecond per class: that was a third of the
time that `skymesh join` took to start. Here only the names of the fields are read, and what is used is compiled then.
`dataclasses.fields`, `replace` and `asdict` take these classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        *,
        slots: bool,
        frozen: bool = False,
        kw_only: bool = False,
        eq: bool = True,
        repr: bool = True,  # noqa: A002
    ) -> Callable[[type], type]:
        """See `dataclasses.dataclass`. Classes without slots, ordering and `InitVar` are left to that one."""
        if not slots:
            raise TypeError("dataclasses without slots are made by the standard library's decorator")
        return lambda cls: _finish(cls, {"frozen": frozen, "kw_only": kw_only}, has_eq=eq, has_repr=repr)


class _Factory:
    def __repr__(self) -> str:
        return "<factory>"


FACTORY = _Factory()
"""In signatures: the field is made when the constructor is called without it."""
MISSING = dataclasses.MISSING


class _Later:
    """An attribute that does not exist yet: whoever looks it up gets the real one, which takes this one's place."""

    def __init__(self, source: _Source, name: str, **options: bool) -> None:
        self._source = source
        self._name = name
        self._options = options

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        source = self._source
        found = source.init() if self._name == "__init__" else source.compiled(self._name, self._options)
        type.__setattr__(self._source.cls, self._name, found)
        return found.__get__(instance, owner) if hasattr(found, "__get__") else found


class _Source:
    """What a class was written as, for whoever compiles its methods."""

    def __init__(
        self, cls: type, annotations: dict[str, Any], defaults: dict[str, Any], options: dict[str, bool]
    ) -> None:
        self.cls = cls
        self.annotations = annotations
        self.defaults = defaults
        self.options = options

    def inherited(self) -> dict[str, dataclasses.Field[Any]]:
        return {
            field.name: field
            for base in reversed(self.cls.__mro__[1:])
            if dataclasses.is_dataclass(base)
            for field in dataclasses.fields(base)
        }

    def init(self) -> Any:
        """`__init__` is what nearly every class in use needs: made here, it takes a fifth of the time."""
        inherited = self.inherited()
        kinds = {name: field.type for name, field in inherited.items()} | self.annotations
        scope: dict[str, Any] = {"_set_field": object.__setattr__, "_factory": FACTORY}
        by_position, by_name, body = ["self"], list[str](), list[str]()
        for name in kinds:
            written = self.defaults.get(name, MISSING) if name in self.annotations else inherited[name]
            field: Any = written if _is_field(written) else dataclasses.field(default=written)
            default = f"_default_{name}"
            scope[default] = field.default if field.default_factory is MISSING else field.default_factory
            if scope[default] is MISSING:
                parameter, value = name, name
            elif field.default_factory is MISSING:
                parameter, value = f"{name}={default}", name if field.init else default
            else:
                parameter = f"{name}=_factory"
                value = f"{default}() if {name} is _factory else {name}" if field.init else f"{default}()"
            if field.init:
                is_by_name = self.options["kw_only"] if field.kw_only is MISSING else field.kw_only
                (by_name if is_by_name else by_position).append(parameter)
            elif scope[default] is MISSING:
                continue
            is_frozen = self.options["frozen"]
            body.append(f"_set_field(self, {name!r}, {value})" if is_frozen else f"self.{name} = {value}")
        if hasattr(self.cls, "__post_init__"):
            body.append("self.__post_init__()")
        parameters = ", ".join(by_position + ["*"] * bool(by_name) + by_name)
        exec(f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"]), scope)
        found = scope["__init__"]
        found.__module__, found.__qualname__ = self.cls.__module__, f"{self.cls.__qualname__}.__init__"
        taken = [parameter.partition("=")[0] for parameter in by_position[1:] + by_name]
        found.__annotations__ = {name: kinds[name] for name in taken} | {"return": None}
        return found

    def compiled(self, name: str, options: dict[str, bool]) -> Any:
        """The attribute as the standard library makes it, of a class with the same fields."""
        cls = self.cls
        written: dict[str, Any] = {"__doc__": cls.__name__, "__module__": cls.__module__}
        inherited = self.inherited()
        written |= {name: copy(field) for name, field in inherited.items()}
        written["__annotations__"] = {name: field.type for name, field in inherited.items()} | self.annotations
        written |= {name: copy(value) if _is_field(value) else value for name, value in self.defaults.items()}
        wanted = {"init": False, "repr": False, "eq": False, "slots": True} | self.options | options
        found = vars(dataclasses.dataclass(**wanted)(type(cls.__name__, (), written)))[name]
        if callable(found):
            found.__qualname__ = f"{cls.__qualname__}.{name}"
        return found


def _finish(cls: type, options: dict[str, bool], *, has_eq: bool, has_repr: bool) -> type:
    written = dict(vars(cls))
    annotations = {name: kind for name, kind in written.get("__annotations__", {}).items() if not _is_of_class(kind)}
    defaults = {name: written.pop(name) for name in annotations if name in written}
    bases = cls.__mro__[1:-1]
    taken = {name for base in bases for name in vars(base).get("__slots__", ())}
    written["__slots__"] = tuple(name for name in annotations if name not in taken)
    by_position = [] if options["kw_only"] else [name for name in annotations if _is_given(defaults.get(name))]
    before = [name for base in reversed(bases) for name in vars(base).get("__match_args__", ())]
    written.setdefault("__match_args__", tuple(dict.fromkeys([*before, *by_position])))
    for name in ("__dict__", "__weakref__"):
        written.pop(name, None)
    made = type(cls)(cls.__name__, cls.__bases__, written)
    made.__qualname__ = cls.__qualname__
    source = _Source(made, annotations, defaults, options)
    later: dict[str, Any] = {"__init__": _Later(source, "__init__")}
    for name in ("__dataclass_fields__", "__dataclass_params__"):
        later[name] = _Later(source, name)
    if has_repr:
        later["__repr__"] = _Later(source, "__repr__", repr=True)
    if has_eq:
        later["__eq__"] = _Later(source, "__eq__", eq=True)
        later["__hash__"] = _Later(source, "__hash__", eq=True) if options["frozen"] else None
    if options["frozen"]:
        later |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
        later |= {"__getstate__": _state, "__setstate__": _set_state}
    for name, value in later.items():
        if written.get(name) is None:  # a class that has its own __eq__ and no __hash__ has None for one
            setattr(made, name, value)
    return made


def _is_of_class(kind: object) -> bool:
    return "ClassVar" in (kind if isinstance(kind, str) else str(kind))


def _is_field(value: object) -> bool:
    return isinstance(value, dataclasses.Field)


def _is_given(default: Any) -> bool:
    """Whether the constructor takes the field by position."""
    return not _is_field(default) or (default.init and default.kw_only is not True)


def _refuse_to_set(self: object, name: str, value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[object]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[object]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


__all__ = ["dataclass"]
