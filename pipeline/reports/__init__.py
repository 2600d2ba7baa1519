"""Reports of a run: `load` reads it into the structure of `data`, the other modules draw that. `render` does both."""

from __future__ import annotations

from pathlib import Path

from pipeline.model.errors import UsageError

FORMATS = ("text", "json", "markdown", "html", "svg", "png")
"""svg and png are the waterfall alone."""

__all__ = ["FORMATS", "render"]


def render(
    lake: Path,
    run: str | None,
    format: str,
    *,
    rank: int | None = None,
    step: int | None = None,
    color: bool = False,
) -> str | bytes:
    """The report of a run of the lake (None: the newest) in a format of `FORMATS`; bytes for png only.

    color: terminal codes in text. Raises NoSuchRun, UsageError for an unknown format, rank or step.
    """
    from pipeline.lake.catalog import find_run
    from pipeline.reports.load import load

    if format not in FORMATS:
        raise UsageError(f"no format {format!r}", todo=f"choose one of {', '.join(FORMATS)}")
    report = load(find_run(lake, run), rank, step)
    if format == "json":
        import json

        return json.dumps(report.to_json(), ensure_ascii=False, indent=1, allow_nan=False) + "\n"
    if format == "text":
        from pipeline.reports import text

        return text.render(report, color=color)
    if format == "markdown":
        from pipeline.reports import markdown

        return markdown.render(report)
    if format == "html":
        from pipeline.reports import html

        return html.render(report)
    from pipeline.reports import charts

    drawing = str(charts.waterfall(report, standalone=True))
    if format == "svg":
        return drawing + "\n"
    import vl_convert

    return bytes(vl_convert.svg_to_png(drawing, scale=2))
