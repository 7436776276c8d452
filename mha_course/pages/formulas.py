"""Formulas on pages as MathML, which browsers show and read aloud without any script.

A notebook's texts have them in LaTeX, `$$…$$`, which JupyterLab and GitHub typeset by themselves.
"""

import re
from html import escape
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context
from latex2mathml.converter import convert
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

SIGNS = {"sqrt": "√", "cdot": "·", "dots": "…", "infty": "∞", "sum": "∑", ",": " "}
# A browser may break a line after a formula, before the comma.
ENDS = re.compile(r'(<math [^>]*display="inline"(?:(?!</math>).)*</math>[^\s<]+)', re.S)
COMMAND = re.compile(rf"\\(?:left|right|({'|'.join(SIGNS)}|[a-zA-Z]*))|[{{}}]")


class _Renderer(IPythonRenderer):
    def block_math(self, body: str) -> str:
        return _mathml(body, "block")

    def inline_math(self, body: str) -> str:
        return _mathml(body, "inline")


def _mathml(latex: str, display: str) -> str:
    spoken = escape(typed(latex.strip()))
    try:
        mathml = convert(latex.strip(), display=display).replace(">&<", ">&amp;<")
        return mathml.replace("<math ", f'<math alttext="{spoken}" ', 1)
    except Exception:  # the library's own, without a common one; then the source says it
        return f"<code>{escape(latex)}</code>"


def typed(latex: str) -> str:
    """A formula as one types it: d_model, Q K^T / √d_k, H_(h-1); a command is its sign or name."""
    flat = re.sub(r"\\text\{(.*?)\}", r"\1", latex)
    flat = re.sub(r"\\sqrt\{(\w+)\}", r"√\1", flat)
    flat = re.sub(r"\\frac\{(.*?)\}\{(.*?)\}", r"\1 / \2", flat)
    flat = re.sub(r"([_^])\{([^{}]*[-/][^{}]*)\}", r"\1(\2)", flat)
    return COMMAND.sub(lambda m: SIGNS.get(m[1], m[1] or ""), flat)


@pass_context
def _page(context: Context, source: str) -> str:
    return rendered(source, context.get("cell", {}).get("attachments", {}))


def rendered(source: str, attachments: Any = None) -> str:
    """Markdown as HTML; of formulas MathML."""
    renderer = _Renderer(escape=False, attachments=attachments or {})
    page = MarkdownWithMath(renderer=renderer).render(source)
    return ENDS.sub(r'<span style="white-space:nowrap">\1</span>', page)


def typeset(exporter: HTMLExporter) -> HTMLExporter:
    """`exporter`, which writes the formulas in texts as MathML from now on."""
    exporter.register_filter("markdown2html", _page)
    return exporter
