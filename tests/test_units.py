"""How numbers are written, above all where the number of decimals or the unit changes."""

import math

import pytest

from tfmon import units
from tfmon.model.readings import Missing

WRITTEN = {
    units.rate: {
        **{0: "0.00", 0.42: "0.42", 9.994: "9.99", 9.996: "10.0", 99.94: "99.9", 99.96: "100", 7663.4: "7 663"}
    },
    units.count: {0: "0", 999: "999", 1000: "1 000", 1_234_567: "1 234 567"},
    units.short_count: {
        **{0: "0", 0.5: "0.5", 7: "7", 24.6: "25", 812.4: "812", 999.4: "999", 999.6: "1k", 7_663: "7.7k"},
        **{99_600: "100k", 999_499: "999k", 999_501: "1M", 1_234_567: "1.2M", 2.5e9: "2.5G"},
    },
    units.ratio: {1.04: "1.04×", 1.994: "1.99×", 1.996: "2.0×", 9.94: "9.9×", 9.96: "10×", 12.3: "12×"},
    units.milliseconds: {
        **{0.0842: "0.084 ms", 0.0996: "0.10 ms", 1.291: "1.29 ms", 9.994: "9.99 ms", 9.996: "10.0 ms"},
        **{999.4: "999.4 ms", 999.6: "1 000 ms", 1240: "1 240 ms", math.inf: "∞ ms"},
    },
    units.memory: {
        **{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 9.96 * 1024: "10 KiB", 1023.4 * 2**20: "1023 MiB"},
        **{1023.6 * 2**20: "1.0 GiB", 5000 * 2**40: "5000 TiB"},
    },
    units.clock: {-3: "0:00", 42.9: "0:42", 60: "1:00", 725: "12:05", 3599.9: "59:59", 3723: "1:02:03"},
    units.seconds: {-1: "0.0 s", 2.14: "2.1 s", 99.94: "99.9 s", 102.5: "1:42"},
    units.percent: {212.4: "212 %", 0.2: "0 %"},
    units.cores: {8.0: "8", 2.5: "2.5"},
    units.loss: {
        **{0: "0", 2.302585: "2.3026", 12.3456: "12.346", 1234.56: "1234.6", 0.01234: "0.0123", 0.99999: "1.0000"},
        **{-0.25: "-0.2500", 0.00001234: "1.234e-05", 12_345.6: "1.235e+04", math.nan: "nan", math.inf: "inf"},
    },
}


@pytest.mark.parametrize("write", WRITTEN, ids=lambda write: write.__name__)
def test_decimals_and_units_change_where_rounding_says(write):
    assert {value: write(value) for value in WRITTEN[write]} == WRITTEN[write]


def test_a_value_that_is_missing_says_why():
    assert units.reading(Missing("no GPU in this lane"), units.percent) == "n/a (no GPU in this lane)"
    assert units.reading(0.0, units.percent) == "0 %"


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (15.62, 15.43, 15.81, ("15.6×", "15.4 to 15.8")),
        (15.62, 12.1, 19.2, ("16×", "12 to 19")),
        (1.1005, 1.0991, 1.1022, ("1.101×", "1.099 to 1.102")),
        (2.0, 2.0, 2.0, ("2.000×", "2.000 to 2.000")),
    ],
)
def test_a_ratio_has_the_decimals_that_its_interval_deserves(value, low, high, text):
    assert units.ratio_in(value, low, high) == text


def test_the_share_that_is_discarded_has_its_reasons():
    shares = {"after a switch": 0.061, "compiling": 0.03, "pause": 0.004}
    assert units.discarded(shares) == "discarded 10 %: after a switch 6 %, compiling 3 %, pause <1 %"
    assert units.discarded({"warm-up": 0.77}) == "discarded 77 %: warm-up"
    assert units.discarded({}) == "discarded nothing"
