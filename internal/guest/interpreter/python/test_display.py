"""Tests of what values look like."""

import datetime
import math
import unittest

import carboy_display


class Plain(unittest.TestCase):
    def test_values(self) -> None:
        import numpy

        for value, want in (
            (float("nan"), None),
            (math.inf, None),
            (True, True),
            ((1, 2.5, "x", None), [1, 2.5, "x", None]),
            ({1: 2, None: 3, False: 4}, {"1": 2, "null": 3, "false": 4}),
            (datetime.date(2024, 1, 2), "2024-01-02"),
            (numpy.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
            (numpy.float32("nan"), None),
            (numpy.datetime64("2024-01-02"), "2024-01-02"),
            ({numpy.int64(7): numpy.bool_(True)}, {"7": True}),
        ):
            with self.subTest(value=value):
                self.assertEqual(want, carboy_display.plain(value))

    def test_refused(self) -> None:
        endless: list = []
        endless.append(endless)
        for value in (object(), {object(): 1}, {1, 2}, endless, b"bytes", 1j):
            with self.subTest(kind=type(value)):
                self.assertRaises(carboy_display.NotJSON, carboy_display.plain, value)


if __name__ == "__main__":
    unittest.main()
