"""The declaration of an option."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar, cast

from tfmon.api.value_rules import ValueRule
from tfmon.errors import flag

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)
LIMITS = "limits"
"""Stands for all commands."""


class Option(Generic[In, Out]):
    """A field of `Options`, which checks and converts assigned values. `None` stands for the default.

    The type parameters are the types of assigned and of read values.
    """

    name: str

    def __init__(
        self,
        rule: ValueRule[Out],
        default: Out,
        help: str,
        *,
        commands: str = "",
        flag: str | None = "",
        metavar: str | None = None,
        shown: str | bool = False,
        off: str = "",
        optional_value: str | None = None,
        multiple: bool = False,
    ) -> None:
        """Declare an option.

        Args:
            flag: The flag, by default from the name. `None` for no flag.
            off: A flag that sets the option to False.
        """
        self.rule, self.default, self.help, self.commands = rule, default, help, commands.split()
        self.metavar, self.shown, self.off = metavar, shown, off
        self.optional_value, self.multiple, self._flag = optional_value, multiple, flag
        self.has_flag = flag is not None

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type | None = None) -> Out:
        value = None if instance is None else vars(instance).get(self.name)
        # The class attribute is None, the default of the dataclass.
        return cast(Out, self.default if value is None and instance is not None else value)

    def __set__(self, instance: object, value: In) -> None:
        vars(instance)[self.name] = None if value is None else self.rule.argument(self.name, value)

    @property
    def flag(self) -> str:
        """The flag, such as `--slice` or `--fresh/--no-fresh`."""
        return self._flag or flag(self.name)

    @property
    def setting(self) -> str:
        """The name of the setting. Empty if there is none."""
        return self.name.removesuffix("_s") if {"config", LIMITS} & {*self.commands} else ""

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"TFMON_{self.setting.upper()}"

    def read(self, value: object, *, as_text: bool = True) -> Out:
        """Return a value from text or the file; raises ValueError."""
        try:
            return self.rule.read(self.rule.parse(value) if as_text and isinstance(value, str) else value)
        except ValueError:
            raise ValueError(f"{value!r} is not {self.rule.allowed(in_text=True)}") from None


@dataclass(kw_only=True, eq=False, repr=False)
class Options:
    """The values of options."""

    @classmethod
    def declared(cls) -> list[Option[Any, Any]]:
        """Return the options, with inherited options last."""
        names = sorted((field.name for field in fields(cls)), key=lambda name: name not in vars(cls))
        return [cls.declaration(name) for name in names]

    @classmethod
    def declaration(cls, name: str) -> Option[Any, Any]:
        """Return an option."""
        option = inspect.getattr_static(cls, name)
        assert isinstance(option, Option)
        return option

    def takes_setting(self, option: Option[Any, Any], command: str) -> bool:
        """Return whether a command uses the setting."""
        return bool(option.setting) and command in option.commands

    def has(self, name: str) -> bool:
        """Return whether an option is set."""
        return vars(self).get(name) is not None

    def validate(self, command: str, names: frozenset[str]) -> None:
        """Raise UsageError for a conflict. The caller has set the options `names`."""
