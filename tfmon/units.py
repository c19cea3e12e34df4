"""Formats numbers. The only module that chooses units, decimals and characters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from tfmon.model.readings import Missing, Reading


def rate(value: float) -> str:
    """Write about three significant digits: 7 663, 24.2, 0.42."""
    if value >= 99.95:
        return f"{value:,.0f}".replace(",", " ")
    if value >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}"


def count(value: int) -> str:
    """Write a whole number: 12 400."""
    return f"{value:,}".replace(",", " ")


def several(number: int, noun: str) -> str:
    """Write `1 pair`, `2 pairs`."""
    return f"{number} {noun}" if number == 1 else f"{count(number)} {noun}s"


def short_count(value: float) -> str:
    """Write at most five characters: 7.7k, 812, 1.2M."""
    for limit, divisor, suffix in ((999.5, 1.0, ""), (999_500, 1e3, "k"), (999.5e6, 1e6, "M")):
        if abs(value) < limit:
            scaled = value / divisor
            return (f"{scaled:.0f}" if scaled >= 99.5 or scaled == int(scaled) else f"{scaled:.2g}") + suffix
    return f"{value / 1e9:.2g}G"


def ratio(value: float) -> str:
    """Write a ratio: 3.2×, 1.04×, 12×."""
    return f"{value:.0f}×" if value >= 9.95 else f"{value:.1f}×" if value >= 1.995 else f"{value:.2f}×"


def ratio_in(value: float, low: float, high: float) -> tuple[str, str]:
    """Write a ratio and its interval: 15.6× and 15.4 to 15.8."""
    width = high - low
    least = 0 if low >= 10 else 1 if value >= 1.995 else 2
    decimals = 3 if width <= 0 else min(3, max(least, math.ceil(-math.log10(width))))
    return f"{value:.{decimals}f}×", f"{low:.{decimals}f} to {high:.{decimals}f}"


def milliseconds(value: float) -> str:
    """Write a step time: 0.084 ms, 1.29 ms, 41.0 ms, 1 240 ms."""
    if math.isinf(value):  # a child can send any number
        return "∞ ms"
    if value >= 999.5:
        return f"{count(round(value))} ms"
    if value >= 9.995:
        return f"{value:.1f} ms"
    return f"{value:.2f} ms" if value >= 0.0995 else f"{value:.3f} ms"


def offset(nanoseconds: int) -> str:
    """Write the difference of two clocks: +0.000033 s, -3 600.000120 s."""
    whole, micros = divmod(abs(nanoseconds + 500 * (1 if nanoseconds >= 0 else -1)) // 1_000, 1_000_000)
    return f"{'-' if nanoseconds < 0 else '+'}{count(whole)}.{micros:06} s"


def memory(value: float) -> str:
    """Write bytes: 301 MiB, 1.2 GiB."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1023.5 and len(units) > 1:
        value /= 1024
        del units[0]
    return f"{value:.0f} {units[0]}" if value >= 9.95 or units[0] == "B" else f"{value:.1f} {units[0]}"


def clock(seconds: float) -> str:
    """Write an elapsed time: 0:42, 12:05, 1:02:03."""
    minutes, second = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def about(seconds: float) -> str:
    """Write about how long: 7 s, 40 s, 3 min, 2 h."""
    for limit, unit, step, name in ((9.5, 1, 1, "s"), (97.5, 1, 5, "s"), (5370, 60, 1, "min")):
        if seconds < limit:
            return f"{max(step, step * round(seconds / unit / step))} {name}"
    return f"{round(seconds / 3600)} h"


def signed_clock(seconds: float) -> str:
    """Write a time since the start signal: `-0:05` is before it."""
    return f"-{clock(-seconds)}" if seconds <= -1 else clock(seconds)


def _whole(unit: str) -> Callable[[float], str]:
    return lambda value: f"{value:.0f} {unit}"


percent, watts, celsius, megahertz = map(_whole, ("%", "W", "°C", "MHz"))


def rates(low: float, high: float) -> str:
    """Write an interval of a rate: 4 990 to 5 010."""
    return f"{rate(low)} to {rate(high)}"


def measured(measured_s: float, ran_s: float, shares: Mapping[str, float]) -> str:
    """Write the measured time: measured for 12 s of 15 s.

    `shares` are the discarded shares of `ran_s`. The whole is omitted if the parts do not add up to it.
    """
    text, whole = seconds(measured_s), seconds(ran_s)
    is_part = text == seconds(ran_s * (1 - sum(shares.values())))
    return f"measured for {text} of {whole}" if is_part and text != whole else f"measured for {text}"


def discarded(shares: Mapping[str, float]) -> str:
    """Write the discarded share: discarded 9 %: pause 6 %, compiling 3 %."""
    share, reasons = discarded_parts(shares)
    return f"discarded {share}" + (f": {', '.join(reasons)}" if reasons else "")


def discarded_parts(shares: Mapping[str, float]) -> tuple[str, list[str]]:
    """Return the parts `9 %`, and `pause 6 %`, `compiling 3 %`."""
    if not shares:
        return "nothing", []
    parts = [f"{reason} {_share(share)}" for reason, share in shares.items()]
    return _share(sum(shares.values())), parts if len(parts) > 1 else list(shares)


def _share(value: float) -> str:
    return f"{100 * value:.0f} %" if value >= 0.01 else "<1 %"


def cores(value: float) -> str:
    """Write a number of cores: 8, 2.5."""
    return f"{value:g}"


def loss(value: float) -> str:
    """Write a loss: 2.3026, 12.346, 0.0123, 1.234e-05, nan."""
    if not 1e-3 <= abs(value) < 1e4:
        return f"{value:.4g}"
    return f"{value:#.5g}".rstrip(".") if abs(value) >= 1 else f"{value:.4f}"


def absent(missing: Missing) -> str:
    """Write why a value is unknown: n/a (no GPU in this lane)."""
    return f"n/a ({missing.reason})"


def reading(value: Reading, write: Callable[[float], str]) -> str:
    """Write a reading, or why it is unknown."""
    return absent(value) if isinstance(value, Missing) else write(value)


def duration(seconds_: float) -> str:
    """Write a short or long time: 12.4 ms, 2.1 s, 1:42."""
    return seconds(seconds_) if seconds_ >= 0.9995 else milliseconds(1e3 * seconds_)


def seconds(value: float) -> str:
    """Write a short wait: 2.1 s, 48.0 s, 1:42."""
    if value >= 99.95:
        return clock(value)
    return f"{max(0.0, value):.1f} s"


Charset: TypeAlias = Literal["braille", "block", "ascii"]


def charset(encoding: str, environ: Mapping[str, str]) -> Charset:
    """Return the richest safe set of characters. A Linux text console has block elements but no braille."""
    locale = next(filter(None, map(environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "")
    if locale in ("C", "POSIX") or encoding.lower().replace("-", "").replace("_", "") not in (
        "utf8",
        "utf8sig",
        "utf16",
        "utf32",
    ):
        return "ascii"
    return "block" if environ.get("TERM") == "linux" else "braille"
