"""What `dvc plots` draws of a run: which columns, on which axes, and the templates in Vega-Lite for them.

`dvc.yaml` names the plots; DVC looks for their templates in `.dvc/plots`, where a project that is under DVC gets them.
"""

import json
from pathlib import Path

from espalier.tasks import store

FOLDER = Path(".dvc") / "plots"
LOG = {"type": "log", "nice": True}
SYMLOG = {"type": "symlog"}  # logarithmic, and yet with a place for what was never seen
TICKS = [0, *(step * 10**power for power in range(7) for step in (1, 3))]
WIDTH, HEIGHT = 440, 300


def _curve(name: str) -> str:
    return f"{store.CURVES}/{name}.csv"


PLOTS = {
    "Objective": {
        "x": "iteration", "y": {_curve("learning"): "objective"}, "template": "espalier_curve_log",
        "x_label": "iteration", "y_label": "loss plus penalty (logarithmic)",
    },
    "Development error": {
        "x": "iteration", "y": {_curve("learning"): "dev_token_error"}, "template": "espalier_curve",
        "x_label": "iteration", "y_label": "share of wrong labels, development data",
    },
    "Calibration": {
        "x": "confidence", "y": {_curve("calibration"): "accuracy"}, "template": "espalier_calibration",
        "x_label": "stated confidence", "y_label": "share that is right",
    },
    "Error by length": {
        "x": "high", "y": {_curve("lengths"): "error"}, "template": "espalier_rates",
        "x_label": "tokens of a sequence, at most", "y_label": "share of wrong labels, test data",
    },
    "Error by frequency of the input": {
        "x": "low", "y": {_curve("frequencies"): "error"}, "template": "espalier_rates_log",
        "x_label": "times seen in training, at least (logarithmic)", "y_label": "share of wrong labels, test data",
    },
    "Confusions": {
        "x": "predicted", "y": {_curve("confusion"): "label"}, "template": "espalier_counts",
        "x_label": "predicted label", "y_label": "right label",
    },
}  # fmt: skip


# Templates ------------------------------------------------------------------------------------------


def _axis(side: str, scale: dict | None = None, **axis) -> dict:
    """An encoding of what dvc.yaml calls x or y, with the name that it gives."""
    found = {"field": f"<DVC_METRIC_{side}>", "type": "quantitative", "title": f"<DVC_METRIC_{side}_LABEL>"}
    return found | {"scale": scale or {"zero": False}} | ({"axis": axis} if axis else {})


def _template(layers: list[dict], **encoding) -> dict:
    """Layers over one another, each revision in a colour of its own."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "data": {"values": "<DVC_METRIC_DATA>"},
        "title": {"text": "<DVC_METRIC_TITLE>", "anchor": "middle"},
        "width": WIDTH, "height": HEIGHT,
        "encoding": encoding | {"color": {"field": "rev", "type": "nominal", "title": "revision"}},
        "layer": layers,
    }  # fmt: skip


def _line(y: dict) -> dict:
    return {"mark": {"type": "line", "point": {"size": 18}, "tooltip": {"content": "data"}}, "encoding": {"y": y}}


def _interval(name: str) -> dict:
    """A bar from the lower to the upper end of an interval of 95 %."""
    ends = {"y": {"field": f"{name}_low", "type": "quantitative"}, "y2": {"field": f"{name}_high"}}
    return {"mark": {"type": "rule", "strokeWidth": 1.5, "opacity": 0.6}, "encoding": ends}


def _rates(x: dict) -> dict:
    share = _axis("Y", {"zero": True}, format="~%")
    return _template([_interval("error"), _line(share)], x=x)


def _calibration() -> dict:
    """How often it is right where it states a confidence; on the diagonal it is honest."""
    whole = {"domain": [0, 1]}
    honest = {
        "data": {"values": [{"at": 0}, {"at": 1}]},
        "mark": {"type": "line", "strokeDash": [6, 5], "color": "gray"},
        "encoding": {axis: {"field": "at", "type": "quantitative"} for axis in "xy"} | {"color": {"value": "gray"}},
    }
    layers = [honest, _interval("accuracy"), _line(_axis("Y", whole, format="~%"))]
    return _template(layers, x=_axis("X", whole, format="~%"))


def _counts() -> dict:
    """Wrong labels as a map for each revision; right ones would drown them."""
    names = {side.lower(): {"field": f"<DVC_METRIC_{side}>", "type": "nominal", "title": f"<DVC_METRIC_{side}_LABEL>"}
             for side in "XY"}  # fmt: skip
    errors = {"field": "errors", "type": "quantitative", "scale": {"type": "sqrt"}, "title": "errors"}
    told = [{"field": name, "type": "nominal"} for name in ("label", "predicted", "errors")]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "data": {"values": "<DVC_METRIC_DATA>"},
        "title": {"text": "<DVC_METRIC_TITLE>", "anchor": "middle"},
        "facet": {"column": {"field": "rev", "sort": [], "title": None}},
        "spec": {
            "width": 560, "height": 560,
            "transform": [{"filter": "datum.label != datum.predicted"},
                          {"calculate": "toNumber(datum.count)", "as": "errors"}],
            "mark": "rect",
            "encoding": names | {"color": errors, "tooltip": told},
        },
    }  # fmt: skip


TEMPLATES = {
    "espalier_curve": _template([_line(_axis("Y", None, format="~%"))], x=_axis("X")),
    "espalier_curve_log": _template([_line(_axis("Y", LOG))], x=_axis("X")),
    "espalier_calibration": _calibration(),
    "espalier_rates": _rates(_axis("X")),
    "espalier_rates_log": _rates(_axis("X", SYMLOG, values=TICKS)),
    "espalier_counts": _counts(),
}


def write_templates(root: Path) -> None:
    """Write those that are not there as they should be; nothing in a folder that is not under DVC."""
    if not (root / ".dvc").is_dir():
        return
    for name, template in TEMPLATES.items():
        path, text = root / FOLDER / f"{name}.json", json.dumps(template, indent=2) + "\n"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            store.write_text(path, text)
