"""Functions for Python whose arguments are declared options."""

from __future__ import annotations

import functools
import inspect
import textwrap
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from tfmon.api.option import Option, Options
from tfmon.api.settings import settled
from tfmon.errors import TfmonError

Chosen = TypeVar("Chosen", bound=Options)
Result = TypeVar("Result")
P = ParamSpec("P")


def with_arguments(
    options: Callable[P, Chosen], command: str
) -> Callable[[Callable[[Chosen], Result]], Callable[P, Result]]:
    """Give a function declared options as arguments."""

    def decorate(function: Callable[[Chosen], Result]) -> Callable[P, Result]:
        made = inspect.signature(options)
        known = {option.name: option for option in cast("type[Options]", options).declared()}

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Result:
            made.bind(*args, **kwargs)
            try:
                return function(settled(options(*args, **kwargs), command))
            except TfmonError as error:
                error.use_arguments()
                raise

        plain = [
            parameter.replace(annotation=parameter.empty, default=known[parameter.name].default)
            for parameter in made.parameters.values()
        ]
        vars(call)["__signature__"] = made.replace(parameters=plain, return_annotation=made.empty)
        doc = inspect.cleandoc(function.__doc__ or "")
        call.__doc__ = doc.replace(
            "Raises:", f"Args:\n{_describe([known[name] for name in made.parameters])}\n\nRaises:"
        )
        return call

    return decorate


def _describe(options: list[Option[Any, Any]]) -> str:
    names = {option.flag.partition("/")[0]: option.name for option in options}
    lines = []
    for option in options:
        help = " ".join(names.get(word, word) for word in option.help.split())
        unclear = option.default not in ((), "", None) and "Default:" not in help
        default = f" Default: {option.default!r}." if unclear else ""
        allowed = f" Takes {option.rule.allowed()}." if option.rule.name != "boolean" else ""
        text = f"{option.name}: {help}{allowed}{default}"
        lines.append(
            textwrap.fill(text, 110, initial_indent="    ", subsequent_indent="        ", break_on_hyphens=False)
        )
    return "\n".join(lines)
