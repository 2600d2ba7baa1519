"""The few SVG elements that charts need. Text and attributes are always escaped."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape

INK, FAINT, RULE = "ink", "faint", "rule"
"""Classes of text, secondary text and lines; the page or the file gives them their colours."""

_FILE_STYLE = (
    "text{font-family:'Inter','Helvetica Neue',Helvetica,Arial,'Liberation Sans','DejaVu Sans',sans-serif;font-size:12px;fill:#1c2128}"
    ".faint{fill:#5b6472}.strong{font-weight:600}.rule{stroke:#d5dae1;stroke-width:1}.line{stroke:#1c2128}"
)


def tag(name: str, *children: str, **attributes: object) -> Markup:
    """An element; `_` in attribute names is `-`, a trailing `_` is dropped, None is left out. Children are escaped
    unless they are Markup."""
    parts = []
    for key, value in attributes.items():
        if value is None:
            continue
        shown = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
        parts.append(f' {key.rstrip("_").replace("_", "-")}="{escape(shown)}"')
    inner = Markup("").join(child if isinstance(child, Markup) else escape(child) for child in children)
    head = f"<{name}{''.join(parts)}"
    return Markup(f"{head}>{inner}</{name}>") if inner else Markup(f"{head}/>")


def text(x: float, y: float, content: str, *, kind: str = INK, anchor: str | None = None, **more: object) -> Markup:
    return tag("text", content, x=float(x), y=float(y), class_=kind, text_anchor=anchor, **more)


def rect(x: float, y: float, width: float, height: float, *children: str, **more: object) -> Markup:
    return tag("rect", *children, x=float(x), y=float(y), width=float(max(width, 0)), height=float(height), **more)


def line(x1: float, y1: float, x2: float, y2: float, **more: object) -> Markup:
    more.setdefault("class_", RULE)
    return tag("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), **more)


def patterns() -> Markup:
    """Hatches of evidence, laid over the colour. Once a page, or once a file."""
    pale, stroke = "#ffffff", "stroke-opacity"
    diagonal = tag("path", d="M-1,1 l2,-2 M0,6 l6,-6 M5,7 l2,-2", stroke=pale, stroke_width="1.1", **{stroke: "0.55"})
    dots = tag("circle", cx="3", cy="3", r="1.2", fill=pale, fill_opacity="0.75")
    cross = tag("path", d="M0,0 l6,6 M6,0 l-6,6", stroke=pale, stroke_width="1", **{stroke: "0.75"})
    return tag(
        "defs",
        *(
            tag("pattern", inner, id=f"hatch-{name}", width="6", height="6", patternUnits="userSpaceOnUse")
            for name, inner in (("inferred", diagonal), ("modelled", dots), ("assumed", cross))
        ),
    )


def drawing(width: float, height: float, parts: Iterable[Markup], *, title: str, standalone: bool = False) -> Markup:
    """An <svg> with a name for readers that don't see it. standalone: a file of its own, on white."""
    inside = [tag("title", title)]
    if standalone:
        inside += [
            Markup(f"<style>{_FILE_STYLE}</style>"),
            patterns(),
            rect(0, 0, width, height, fill="#ffffff"),
        ]
    return tag(
        "svg",
        *inside,
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        width=f"{width:g}" if standalone else None,
        height=f"{height:g}" if standalone else None,
        role="img",
        aria_label=title,
    )
