"""Tests of what is read off figures."""

import datetime
import unittest

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt

import carboy_charts


class Charts(unittest.TestCase):
    def setUp(self) -> None:
        self.fig, self.ax = plt.subplots()

    def tearDown(self) -> None:
        plt.close("all")

    def chart(self) -> dict:
        found = carboy_charts.figure_chart(self.fig)
        assert found is not None
        return found

    def test_blank(self) -> None:
        self.assertIsNone(carboy_charts.figure_chart(self.fig))

    def test_line(self) -> None:
        days = [datetime.date(2023, 9, 1) + datetime.timedelta(days=i) for i in range(3)]
        self.ax.plot(days, [1, 10, 100], label="a")
        self.ax.plot(days, [2.5, 20, 200])
        self.ax.set(title="T", xlabel="Time (s)", ylabel="Level [dB]", yscale="log")
        got = self.chart()
        self.assertEqual(("line", "T"), (got["type"], got["title"]))
        self.assertEqual(("Time (s)", "s", "Level [dB]", "dB"), tuple(got[k] for k in ("x_label", "x_unit", "y_label", "y_unit")))
        self.assertEqual(("datetime", "log"), (got["x_scale"], got["y_scale"]))
        self.assertTrue(all(isinstance(t, str) for t in got["x_ticks"]))
        self.assertTrue(all(isinstance(t, float) for t in got["y_ticks"]))
        self.assertEqual(["a", "Line 1"], [e["label"] for e in got["elements"]])
        self.assertEqual(("2023-09-02", 10), got["elements"][0]["points"][1])

    def test_rules_are_no_lines(self) -> None:
        self.ax.plot([1, 2, 3], [1, 2, 3])
        self.ax.axhline(2)
        self.assertEqual(1, len(self.chart()["elements"]))

    def test_categories(self) -> None:
        self.ax.plot([1, 2, 3], ["A", "B", "C"])
        self.assertEqual("categorical", self.chart()["y_scale"])
        self.assertEqual("linear", self.chart()["x_scale"])
        self.assertEqual((1, "A"), self.chart()["elements"][0]["points"][0])

    def test_ticks_that_only_count_are_no_categories(self) -> None:
        self.ax.plot([0, 1, 2], [0, 1, 2])
        self.ax.set_xticks([0, 1, 2])
        self.assertEqual("linear", self.chart()["x_scale"])
        self.ax.set_xticks([0, 1, 2], ["a", "b", "c"])
        self.assertEqual("categorical", self.chart()["x_scale"])

    def test_scatter(self) -> None:
        self.ax.scatter([1, 2], [3, 4.5], label="one")
        got = self.chart()
        self.assertEqual("scatter", got["type"])
        self.assertEqual([{"label": "one", "points": [(1.0, 3.0), (2.0, 4.5)]}], got["elements"])

    def test_bars(self) -> None:
        self.ax.bar(["p", "q"], [7, 7], label="all")  # of equal height, and standing all the same
        self.ax.set(xlabel="what", ylabel="count")
        got = self.chart()
        self.assertEqual(("bar", "what", "count"), (got["type"], got["x_label"], got["y_label"]))
        self.assertEqual([("p", 7.0, "all"), ("q", 7.0, "all")], [(e["label"], e["value"], e["group"]) for e in got["elements"]])

    def test_bars_that_lie(self) -> None:
        self.ax.barh(["p", "q"], [3, 4])
        self.ax.set(xlabel="count", ylabel="what")
        got = self.chart()
        self.assertEqual(("what", "count"), (got["x_label"], got["y_label"]))
        self.assertEqual([("p", 3.0, "Group 0"), ("q", 4.0, "Group 0")], [(e["label"], e["value"], e["group"]) for e in got["elements"]])

    def test_pie(self) -> None:
        self.ax.pie([90, 10], labels=["No", "Yes"], autopct="%1.1f%%", startangle=90)
        got = self.chart()
        self.assertEqual("pie", got["type"])
        self.assertEqual([("No", 324, 1), ("Yes", 36, 1)], [(e["label"], e["angle"], e["radius"]) for e in got["elements"]])

    def test_boxes(self) -> None:
        data = {"A": [85, 90, 78, 92, 88], "B": [95, 89, 76, 91, 84, 87], "C": [75, 82, 88, 79, 86]}
        for vert in (True, False):
            with self.subTest(vert=vert):
                self.ax.clear()
                self.ax.boxplot(list(data.values()), labels=list(data), patch_artist=True, vert=vert)
                self.ax.set(**{"xlabel" if vert else "ylabel": "Class"})
                got = self.chart()
                self.assertEqual(("box_and_whisker", "Class"), (got["type"], got["x_label"]))
                boxes = got["elements"]
                self.assertEqual(["A", "B", "C"], [b["label"] for b in boxes])
                self.assertEqual([[], [76], []], [b["outliers"] for b in boxes])
                self.assertEqual([78, 84, 75], [b["min"] for b in boxes])
                self.assertEqual([85, 84.75, 79], [b["first_quartile"] for b in boxes])
                self.assertEqual([88, 88, 82], [b["median"] for b in boxes])
                self.assertEqual([90, 90.5, 86], [b["third_quartile"] for b in boxes])
                self.assertEqual([92, 95, 88], [b["max"] for b in boxes])

    def test_several_axes(self) -> None:
        self.fig.clear()
        left, right = self.fig.subplots(1, 2)
        self.fig.suptitle("Both")
        left.plot([1, 2], [3, 4])
        right.scatter([1], [2])
        got = self.chart()
        self.assertEqual(("superchart", "Both"), (got["type"], got["title"]))
        self.assertEqual(["line", "scatter"], [e["type"] for e in got["elements"]])

    def test_unknown(self) -> None:
        self.ax.add_artist(plt.Circle((0, 0), 1))
        self.ax.set_title("C")
        self.assertEqual({"type": "unknown", "title": "C", "elements": []}, self.chart())


if __name__ == "__main__":
    unittest.main()
