"""Reads what a figure of matplotlib plots: its kind, title, axes and elements.

One chart for each pair of axes; several make a superchart. A kind that is not
known is "unknown", and then has no elements. Reading changes nothing.
"""

import datetime
import math
import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import matplotlib.dates
from matplotlib.axes import Axes
from matplotlib.category import StrCategoryConverter
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch, Rectangle, Wedge
from matplotlib.text import Text

Chart = Dict[str, Any]

MAX_POINTS = 100_000  # of one line or cloud; what is beyond is left out

_UNIT = re.compile(r"\s\((.*?)\)|\[(.*?)\]")


def figure_chart(figure: Figure) -> Optional[Chart]:
    """Returns the chart of a figure, or None for one without data."""
    axes = figure.get_axes()
    if not any(ax.has_data() for ax in axes):
        return None
    if len(axes) == 1:
        return axes_chart(axes[0])
    title = getattr(figure, "_suptitle", None)
    return {
        "type": "superchart",
        "title": title.get_text() if title is not None else "",
        "elements": [axes_chart(ax) for ax in axes],
    }


def axes_chart(ax: Axes) -> Chart:
    """Returns the chart of one pair of axes."""
    kind = _kind(ax)
    chart: Chart = {"type": kind, "title": ax.get_title() or None, "elements": []}
    if kind == "pie":
        chart["elements"] = [_wedge(w) for w in ax.patches]
    elif kind != "unknown":
        chart.update(_labels(ax))
        _READERS[kind](ax, chart)
    return chart


def _kind(ax: Axes) -> str:
    artists = [a for a in ax._children if not isinstance(a, Text)]
    if all(isinstance(a, Line2D) for a in artists):
        return "line"
    if all(isinstance(a, (PathPatch, Line2D)) for a in artists):
        return "box_and_whisker"
    artists = [a for a in artists if not (isinstance(a, Line2D) and _is_rule(a))]
    for kind, types in (("scatter", PathCollection), ("pie", Wedge), ("bar", Rectangle)):
        if all(isinstance(a, types) for a in artists):
            return kind
    return "unknown"


def _is_rule(line: Line2D) -> bool:
    """Reports whether a line is a rule across the plot, as axhline draws it."""
    x, y = line.get_xdata(), line.get_ydata()
    return len(x) == 2 and len(y) == 2 and (x[0] == x[1] or y[0] == y[1])


def _labels(ax: Axes) -> Chart:
    labels: Chart = {}
    for name, text in (("x", ax.get_xlabel()), ("y", ax.get_ylabel())):
        found = _UNIT.search(text)
        labels[f"{name}_label"] = text or None
        labels[f"{name}_unit"] = (found.group(1) or found.group(2)) if found else None
    return labels


def _swap(chart: Chart) -> None:
    """Makes x the axis of the categories, for bars and boxes that lie."""
    for what in ("label", "unit"):
        chart[f"x_{what}"], chart[f"y_{what}"] = chart[f"y_{what}"], chart[f"x_{what}"]


def _ticks(chart: Chart, name: str, axis: Any, scale: str) -> None:
    converter = axis.get_converter() if hasattr(axis, "get_converter") else axis.converter
    # The labels get their text when the ticks are asked for.
    labels = [label.get_text() for label in axis.get_ticklabels()]
    ticks = [float(t) for t in axis.get_ticklocs()]
    values: List[Any] = ticks
    if isinstance(converter, (matplotlib.dates.DateConverter, matplotlib.dates._SwitchableDateConverter)):
        scale, values = "datetime", [matplotlib.dates.num2date(t).isoformat() for t in ticks]
    elif isinstance(converter, StrCategoryConverter) or (scale == "linear" and _counts(ticks, labels)):
        scale = "categorical"
    chart[f"{name}_ticks"], chart[f"{name}_tick_labels"], chart[f"{name}_scale"] = values, labels, scale


def _counts(ticks: Sequence[float], labels: Sequence[str]) -> bool:
    """Reports whether ticks count 0, 1, 2 … and their labels say otherwise."""
    return bool(ticks) and all(t == i and not _number(s) for i, (t, s) in enumerate(zip(ticks, labels)))


def _number(text: str) -> bool:
    try:
        float(text.replace("\N{MINUS SIGN}", "-"))
    except ValueError:
        return False
    return True


def _points(xs: Any, ys: Any) -> List[Tuple[Any, Any]]:
    return [(_point(x), _point(y)) for x, y, _ in zip(xs, ys, range(MAX_POINTS))]


def _point(value: Any) -> Any:
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if hasattr(value, "astype") and getattr(value.dtype, "kind", "") == "M":
        return str(value.astype("datetime64[s]"))
    if hasattr(value, "item"):
        value = value.item()
    return value if isinstance(value, (int, float)) else str(value)


def _read_lines(ax: Axes, chart: Chart) -> None:
    _ticks(chart, "x", ax.xaxis, ax.get_xscale())
    _ticks(chart, "y", ax.yaxis, ax.get_yscale())
    for line in ax.get_lines():
        if _is_rule(line):
            continue
        label = str(line.get_label())
        if label.startswith("_child"):
            label = f"Line {label[len('_child'):]}"
        chart["elements"].append({"label": label, "points": _points(line.get_xdata(), line.get_ydata())})


def _read_scatter(ax: Axes, chart: Chart) -> None:
    _ticks(chart, "x", ax.xaxis, ax.get_xscale())
    _ticks(chart, "y", ax.yaxis, ax.get_yscale())
    for cloud in ax.collections:
        offsets = cloud.get_offsets()
        chart["elements"].append(
            {"label": str(cloud.get_label()), "points": _points(offsets[:, 0], offsets[:, 1])}
        )


def _read_bars(ax: Axes, chart: Chart) -> None:
    lying = False
    for bars in ax.containers:
        group = str(bars.get_label())
        if group.startswith("_container"):
            group = f"Group {group[len('_container'):]}"
        sideways = getattr(bars, "orientation", "vertical") == "horizontal"
        lying = lying or sideways
        axis = ax.yaxis if sideways else ax.xaxis
        labels = [label.get_text() for label in axis.get_ticklabels()]
        for label, bar in zip(labels, bars):
            value = bar.get_width() if sideways else bar.get_height()
            chart["elements"].append({"label": label, "value": float(value), "group": group})
    if lying:
        _swap(chart)


def _wedge(wedge: Wedge) -> Chart:
    return {
        "label": str(wedge.get_label()),
        "angle": abs(_rounded(float(wedge.theta2) - float(wedge.theta1))),
        "radius": float(wedge.r),
    }


def _rounded(value: float) -> float:
    """Takes the noise off a number that was computed with single precision."""
    if value == 0 or not math.isfinite(value):
        return value
    digits = max(1, 8 - math.floor(math.log10(abs(value))))
    return float(f"{value:.{digits}g}")


class _Box(NamedTuple):
    """A box: along is its extent on the axis of categories, across that of values."""

    label: str
    along: Tuple[float, float]
    across: Tuple[float, float]

    def holds(self, along: Sequence[float]) -> bool:
        low, high = self.along
        slack = 1e-6 * max(1.0, high - low)
        return low - slack <= min(along) and max(along) <= high + slack


def _read_boxes(ax: Axes, chart: Chart) -> None:
    lying = _boxes_lie(ax)
    axis = ax.yaxis if lying else ax.xaxis
    labels = [label.get_text() for label in axis.get_ticklabels()]
    for label, patch in zip(labels, ax.patches):
        corners = patch.get_path().vertices
        along, across = (1, 0) if lying else (0, 1)
        box = _Box(
            label,
            (float(corners[:, along].min()), float(corners[:, along].max())),
            (float(corners[:, across].min()), float(corners[:, across].max())),
        )
        chart["elements"].append(_box(box, ax, lying))
    if lying:
        _swap(chart)


def _boxes_lie(ax: Axes) -> bool:
    """Reports whether boxes lie: a standing one has a median and two caps that
    lie, and only two whiskers that stand."""
    standing = lying = 0
    for line in ax.lines:
        x, y = line.get_xdata(), line.get_ydata()
        if len(x) == 2 and len(y) == 2:
            standing += x[0] == x[1] and y[0] != y[1]
            lying += x[0] != x[1] and y[0] == y[1]
    return bool(standing > lying)


def _box(box: _Box, ax: Axes, lying: bool) -> Chart:
    """Finds the lines that belong to a box, and reads its figures off them."""
    first, third = (_rounded(v) for v in box.across)
    out: Chart = {
        "label": box.label, "min": first, "first_quartile": first, "median": first,
        "third_quartile": third, "max": third, "outliers": [],
    }  # fmt: skip
    for line in ax.lines:
        xs, ys = ([float(v) for v in data] for data in (line.get_xdata(), line.get_ydata()))
        along, across = (ys, xs) if lying else (xs, ys)
        if not along or not box.holds(along):
            continue
        if str(line.get_linestyle()).strip() in ("", "None", "none"):
            out["outliers"] += [_rounded(v) for v in across]
        elif len(across) != 2:
            continue
        elif along[0] == along[1]:  # a whisker
            out["min"] = min(out["min"], _rounded(min(across)))
            out["max"] = max(out["max"], _rounded(max(across)))
        elif across[0] == across[1] and box.across[0] <= across[0] <= box.across[1] and _spans(along, box):
            out["median"] = _rounded(across[0])
    return out


def _spans(along: Sequence[float], box: _Box) -> bool:
    """Tells a median, which spans its box, from a cap, which is half as wide."""
    return max(along) - min(along) > 0.75 * (box.along[1] - box.along[0])


_READERS = {
    "line": _read_lines,
    "scatter": _read_scatter,
    "bar": _read_bars,
    "box_and_whisker": _read_boxes,
}
