"""What a value looks like beside its text: the formats that E2B's clients know.

A DataFrame is shown as its columns (e2b/data), a figure of matplotlib as what it
plots (e2b/chart), lists and dicts as JSON. Nothing here imports pandas,
matplotlib or PIL: their objects exist only where a cell has done so.
"""

import datetime
import importlib.abc
import importlib.machinery
import math
import sys
from types import ModuleType
from typing import Any, Optional, Sequence

from IPython.core.formatters import BaseFormatter, JSONFormatter
from traitlets import ObjectName, Unicode

MAX_DEPTH = 64


class NotJSON(TypeError):
    """A value that JSON has no form for."""


def plain(value: Any, depth: int = 0) -> Any:
    """Returns value as JSON has it: no NaN, no types of numpy, keys as text.

    Raises NotJSON where it can't be, or is nested too deep.
    """
    if depth > MAX_DEPTH:
        raise NotJSON("nested too deep")
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, (datetime.date, datetime.time)):
        return None if value != value else value.isoformat()  # NaT is not equal to itself
    if isinstance(value, dict):
        return {_key(k): plain(v, depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v, depth + 1) for v in value]
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.datetime64):
        return None if numpy.isnat(value) else str(value)
    if numpy is not None and isinstance(value, (numpy.generic, numpy.ndarray)):
        return plain(value.tolist(), depth + 1)
    raise NotJSON(type(value).__name__)


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, (bool, int, float)):
        return {None: "null", True: "true", False: "false"}[key] if key is None or isinstance(key, bool) else str(key)
    if isinstance(key, (datetime.date, datetime.time)):
        return key.isoformat()
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(key, numpy.generic):
        return _key(key.item())
    raise NotJSON(f"key of type {type(key).__name__}")


def _cell(value: Any) -> Any:
    """Returns a cell of a table as JSON has it, or else as its text."""
    try:
        return plain(value)
    except NotJSON:
        return None if value is getattr(sys.modules.get("pandas"), "NA", plain) else str(value)


class DataFormatter(BaseFormatter):
    """Shows a DataFrame as {column: [values]}."""

    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = (dict, str)

    def __call__(self, obj: Any) -> Any:
        pandas = sys.modules.get("pandas")
        frame = getattr(pandas, "DataFrame", None)
        if frame is None or not isinstance(obj, frame):
            return super().__call__(obj)
        return {str(k): [_cell(v) for v in obj.iloc[:, i].tolist()] for i, k in enumerate(obj.columns)}


class ChartFormatter(BaseFormatter):
    """Shows a figure of matplotlib as what it plots."""

    format_type = Unicode("e2b/chart")
    print_method = ObjectName("_repr_e2b_chart_")
    _return_type = (dict, str)

    def __call__(self, obj: Any) -> Any:
        figure = getattr(sys.modules.get("matplotlib.figure"), "Figure", None)
        if figure is None or not isinstance(obj, figure):
            return super().__call__(obj)
        import carboy_charts

        try:
            return plain(carboy_charts.figure_chart(obj))
        except Exception:  # a figure is drawn all the same where it can't be read
            return {}


class ObjectFormatter(JSONFormatter):
    """Shows lists and dicts as JSON, where JSON has a form for all in them."""

    def __call__(self, obj: Any) -> Any:
        if isinstance(obj, (list, dict)):
            try:
                return plain(obj), {"expanded": True}
            except (NotJSON, RecursionError):
                pass
        return super().__call__(obj)


class _AfterPIL(importlib.abc.MetaPathFinder):
    """Waits for PIL.Image to be imported, and then makes saving an image show it."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell

    def find_spec(
        self, name: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if name != "PIL.Image":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            show_saved(module.Image)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def show_saved(image: Any) -> None:
    """Makes images that are saved by name appear among a cell's results."""
    save = image.save

    def save_and_show(self: Any, fp: Any, format: Optional[str] = None, **options: Any) -> None:
        save(self, fp, format, **options)
        if isinstance(fp, str):
            from IPython.display import display

            display(self)

    image.save = save_and_show


def install(shell: Any) -> None:
    """Adds the formats to a shell of IPython."""
    formatter = shell.display_formatter
    formatter.formatters["e2b/data"] = DataFormatter(parent=formatter)
    formatter.formatters["e2b/chart"] = ChartFormatter(parent=formatter)
    formatter.formatters["application/json"] = ObjectFormatter(parent=formatter)
    formatter.active_types = list(formatter.format_types)
    sys.meta_path.insert(0, _AfterPIL(shell))
    # The charts are read from beside this file, whenever that is.
    directory = __file__.rpartition("/")[0]
    sys.meta_path.append(_Beside(directory))


class _Beside(importlib.abc.MetaPathFinder):
    """Finds carboy_charts, after everything that a cell could mean by a name."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def find_spec(
        self, name: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if name != "carboy_charts":
            return None
        return importlib.machinery.PathFinder.find_spec(name, [self.directory], target)
