"""Formulas on pages as MathML, which browsers show and read aloud without any script.

A notebook's texts have them in LaTeX, `$$…$$`, which JupyterLab and GitHub typeset by themselves.
"""

import re
from html import escape

from jinja2 import pass_context
from jinja2.runtime import Context
from latex2mathml.converter import convert
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath


class _Renderer(IPythonRenderer):
    def block_math(self, body: str) -> str:
        return _mathml(body, "block")

    def inline_math(self, body: str) -> str:
        return _mathml(body, "inline")


def _mathml(latex: str, display: str) -> str:
    said = escape(re.sub(r"\\text\{(.*?)\}|\{(\w+)\}", r"\1\2", latex.strip()))  # d_model, h_kv
    try:
        made = convert(latex.strip(), display=display).replace(">&<", ">&amp;<")
        return made.replace("<math ", f'<math alttext="{said}" ', 1)
    except Exception:  # the library's own, without a common one; then the source says it
        return f"<code>{escape(latex)}</code>"


@pass_context
def _page(context: Context, source: str) -> str:
    attachments = context.get("cell", {}).get("attachments", {})
    renderer = _Renderer(escape=False, attachments=attachments)
    return MarkdownWithMath(renderer=renderer).render(source)


def typeset(exporter: HTMLExporter) -> HTMLExporter:
    """`exporter`, which writes the formulas in texts as MathML from now on."""
    exporter.register_filter("markdown2html", _page)
    return exporter
