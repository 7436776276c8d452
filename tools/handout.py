"""What a teacher hands out besides the notebooks: slides, paper, graders' sources, plain copies.

    python tools/handout.py slides [--all] [NUMBER ...]        build/slides/NN_….slides.html
    python tools/handout.py print [--short] [NUMBER ...]       build/print/NN_….html
    python tools/handout.py nbgrader [NUMBER ...]              build/nbgrader/source/…
    python tools/handout.py otter [NUMBER ...]                 build/otter/…
    python tools/handout.py learners [NUMBER ...]              build/learners/…, without outputs

All of it is made from the stored notebooks; nothing is run. Slides hold the open thread, with --all
the second readings too; paper holds both, with --short the open thread. Both are single files that
load nothing from anywhere. `make slides` and `make print` call this.
"""

import re
import sys
from pathlib import Path

from jinja2 import DictLoader
from nbconvert import HTMLExporter, SlidesExporter
from nbformat import NotebookNode, v4

import notebooks
from from_npm import BUILD, fetch
from mha_course.lab.command import EXPLORER, LINKED, RECORD, without_outputs
from mha_course.pages.export import LINK
from mha_course.pages.folds import unfold
from mha_course.pages.formulas import typeset
from minutes import STATED

REVEAL = "reveal.js@5.2.1"
DETAILS = re.compile(r"\n*<details[^>]*>.*?</details>", re.S)
NEIGHBOURS = re.compile(r"^[←→·] ?\[.*$", re.M)  # a line
SOLUTION = re.compile(r"<details>\s*<summary>Solution.*?</details>", re.S)
IMAGE = re.compile(r'(<img [^>]*width=")(\d+)')
LARGER, WIDEST = 1.5, 1180  # pictures on slides, in times and in pixels
STILL = "<p><em>On a slide this picture stands still; in the notebook it moves.</em></p>"
DOTS = re.compile(r"^( *)\.\.\.$", re.M)
SETUP = ("imports", "imports-text")  # cells that no slide needs
FILE_LINK = re.compile(r'<a href="\w+\.(?:ipynb|md)\b[^>]*>(.*?)</a>', re.S)
GUIDE_LINK = re.compile(r'<a href="\w+\.md\b[^>]*>(.*?)</a>', re.S)

# nbconvert's own pages fetch scripts from the network, for formulas, diagrams and widgets that
# these notebooks do not have.
OFFLINE = """
{%- block html_head_js -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
"""
PRINTED = (
    "{%- extends 'index.html.j2' -%}"
    + OFFLINE
    + """
{%- block html_head_css -%}
<style>
  @page { margin: 10mm; }
  .jp-Notebook { max-width: 60rem; margin: auto; }
  .jp-InputPrompt, .jp-OutputPrompt { display: none; }
  summary { font-weight: bold; }
  .jp-RenderedHTMLCommon pre, .jp-CodeCell pre { white-space: pre-wrap; overflow-wrap: anywhere; }
  pre, tr, img, details { break-inside: avoid; }
  h1, h2 { break-after: avoid; }
  img { max-width: 100%; }
</style>
{%- endblock -%}
"""
)
SLIDES = (
    "{%- extends 'index.html.j2' -%}"
    + OFFLINE
    + """
{%- block header -%}
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{{ resources.metadata.name }}: slides</title>
<style>{{ resources.reveal_css }}</style>
{{ resources.include_css("static/index.css") }}
{{ resources.include_css("static/theme-light.css") }}
<style>{% for css in resources.inlining.css %}{{ css }}{% endfor %}</style>
<style>
  :root { --jp-ui-font-size1: 22px; --jp-content-font-size1: 24px; --jp-code-font-size: 19px;
          --jp-cell-prompt-width: 0px; }
  html, body, main { height: 100%; margin: 0; background: white; }
  .reveal .slides { text-align: left; }
  .reveal .slides section { padding: 20px 40px; box-sizing: border-box; }
  .jp-InputPrompt, .jp-OutputPrompt, .jp-Collapser, a.anchor-link { display: none; }
  .jp-RenderedHTMLCommon pre, .jp-CodeCell pre { line-height: 1.35; white-space: pre-wrap; }
  .reveal .slide-number { left: 8px; right: auto; }
  .reveal img { max-width: 100%; max-height: 640px; object-fit: contain; object-position: left; }
  .again { color: #59636C; font-size: 18px; }
</style>
</head>
{%- endblock -%}
{%- block footer_js -%}
<script>{{ resources.reveal_js }}</script>
<script>
  // A slide that is too tall is drawn smaller, as a whole.
  const fit = () => {
    const slide = Reveal.getCurrentSlide();
    slide.style.zoom = 1;
    slide.style.zoom = Math.min(1, 780 / slide.scrollHeight);
  };
  Reveal.on("ready", fit);
  Reveal.on("slidechanged", fit);
  document.addEventListener("toggle", fit, true);  // it does not bubble
  Reveal.on("fragmentshown", (e) => {
    const folded = e.fragment.closest("details");
    if (folded) folded.open = true;
  });
  Reveal.initialize({ width: 1280, height: 800, margin: 0.02, center: false, hash: true,
                      slideNumber: "c/t", transition: "none" });
</script>
{%- endblock -%}
"""
)


def tagged(cell: NotebookNode, *tags: str) -> bool:
    return bool({*tags} & {*cell.metadata.get("tags", ())})


def as_slides(notebook: NotebookNode) -> NotebookNode:
    """The notebook as slides: a heading starts one, and so does each text, code cell or picture.

    A cell's output appears one key press after its code: first predict, then look. Claims and
    predictions are shown without their code, which holds the answer; a verdict is one key press
    away. Exercises keep their task; hints, solutions, stubs and the setup are left out. Each
    further slide below a heading repeats it, small.
    """
    cells: list[NotebookNode] = []
    heading = ""

    def add(cell: NotebookNode, kind: str) -> None:
        again = v4.new_markdown_cell(f'<div class="again">\n\n{heading}\n\n</div>')
        parts = [(again, kind), (cell, "-")] if kind == "subslide" else [(cell, kind)]
        for part, kind in parts:
            part.metadata["slideshow"] = {"slide_type": kind}
            cells.append(part)

    for cell in (cell for cell in notebook.cells if cell.id not in SETUP):
        if cell.cell_type == "markdown":
            text = DETAILS.sub("", NEIGHBOURS.sub("", cell.source))
            for part in re.split(r"^(?=## )", text, flags=re.M):
                if part.startswith("#"):
                    heading = part.splitlines()[0].lstrip("# ")
                if part.strip():
                    kind = "slide" if part.startswith("#") else "subslide"
                    add(v4.new_markdown_cell(part.strip()), kind)
        elif not tagged(cell, "exercise", "check"):
            shown = v4.new_code_cell(
                "", outputs=cell.outputs, metadata={"transient": {"remove_source": True}}
            )
            outputs, cell.outputs = cell.outputs, []
            for output in outputs:
                if "text/html" in output.get("data", {}):
                    output.data["text/html"] = on_a_slide(cell, output.data["text/html"])
            if not tagged(cell, "claim", "prediction"):
                add(cell, "subslide" if cells[-1].cell_type == "code" else "-")
            if outputs:
                large = any("text/html" in output.get("data", {}) for output in outputs)
                add(shown, "subslide" if large else "fragment")
    notebook.cells = cells
    return notebook


def on_a_slide(cell: NotebookNode, html: str) -> str:
    """What a cell shows, larger; explorers say that they are still, a verdict is a fragment."""
    html = IMAGE.sub(lambda m: f"{m[1]}{min(WIDEST, round(LARGER * int(m[2])))}", html)
    if tagged(cell, "claim"):
        return html.replace("</summary><div ", '</summary><div class="fragment" ')
    return html + STILL * bool(EXPLORER.search(cell.source))


def reveal() -> dict[str, str]:
    """The script and style of reveal.js, fetched once and kept in the build folder."""
    dist = fetch(REVEAL) / "reveal.js/dist"
    return {f"reveal_{end}": (dist / f"reveal.{end}").read_text("utf-8") for end in ("js", "css")}


def slides(path: Path) -> str:
    exporter = SlidesExporter(
        template_file="slides.html.j2", extra_loaders=[DictLoader({"slides.html.j2": SLIDES})]
    )
    resources = {"metadata": {"name": path.stem}, **reveal()}
    notebook = unfold(notebooks.read(path), keep="--all" in sys.argv)
    page, _ = typeset(exporter).from_notebook_node(as_slides(notebook), resources)
    return FILE_LINK.sub(r"\1", page)  # slides are shown alone


def printed_page(path: Path) -> str:
    """One page: hints and verdicts open, solutions at the end, predictions as boxes to tick."""
    notebook = unfold(notebooks.read(path), keep="--short" not in sys.argv)
    heading, solutions = "", []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            if cell.source.startswith("#"):
                heading = cell.source.splitlines()[0].lstrip("# ")
            solutions += [f"### {heading}: solution\n\n{s}" for s in SOLUTION.findall(cell.source)]
            # After a blank line, else Markdown reads it as part of the hint's HTML.
            cell.source = SOLUTION.sub("\n*The solution stands at the end.*", cell.source)
            cell.source = cell.source.replace("<details>", "<details open>")
        elif tagged(cell, "claim"):
            for output in cell.outputs:
                html = output.data["text/html"]
                output.data["text/html"] = html.replace("<details ", "<details open ")
    if solutions:
        last = "\n\n".join(["## Solutions", *solutions]).replace("<details>", "<details open>")
        notebook.cells.append(v4.new_markdown_cell(last))
    exporter = HTMLExporter(
        template_file="page.html.j2", extra_loaders=[DictLoader({"page.html.j2": PRINTED})]
    )
    page, _ = typeset(exporter).from_notebook_node(notebook, {"metadata": {"name": path.stem}})
    return LINK.sub(r"\1.html", GUIDE_LINK.sub(r"\1", page))


def with_solution(stub: str, solution: str, begin: str, end: str) -> str:
    """The stub with the solution's lines in place of its dots, each part between two marks."""
    first, *others = re.split(r"^ *\.\.\.$", stub, flags=re.M)
    parts, rest = [first], solution.removeprefix(first)
    for indent, kept in zip(DOTS.findall(stub), others, strict=True):
        body, _, rest = rest.partition(kept) if kept else (rest, "", "")
        parts.append(f"{indent}{begin}\n{body.rstrip()}\n{indent}{end}{kept}")
    return "".join(parts)


def for_graders(path: Path, begin: str, end: str) -> tuple[NotebookNode, dict[str, int]]:
    """A notebook with solutions in the stubs and checks asserted, and each stub's id → minutes."""
    notebook, points, minutes = notebooks.read(path), {}, ["0"]
    answers = notebooks.solutions(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            minutes = STATED.findall(cell.source) or minutes
            cell.source = SOLUTION.sub("", cell.source)
        elif cell.id in answers:
            points[cell.id] = int(minutes[0])
            cell.source = with_solution(cell.source, answers[cell.id], begin, end)
        elif tagged(cell, "check"):
            cell.source = f"report = {cell.source}\nassert report.passed, report"
            cell.outputs = []
    return notebook, points


def nbgrader(path: Path) -> str:
    """An nbgrader source: a stub is an answer, its check a test worth the exercise's minutes."""
    notebook, points = for_graders(path, "### BEGIN SOLUTION", "### END SOLUTION")
    worth = iter(points.values())
    for cell in notebook.cells:
        if tagged(cell, "check", "exercise"):
            test = tagged(cell, "check")
            cell.metadata["nbgrader"] = {
                "schema_version": 3, "grade_id": cell.id, "grade": test, "solution": not test,
                "locked": test, "task": False, **({"points": next(worth)} if test else {}),
            }  # fmt: skip
    return notebooks.nbformat.writes(notebook)


def otter(path: Path) -> str:
    """A notebook for `otter assign`: each exercise is a question, its check the question's test."""
    notebook, points = for_graders(path, "# BEGIN SOLUTION", "# END SOLUTION")
    cells = [v4.new_raw_cell("# ASSIGNMENT CONFIG\nexport_cell: false\ncheck_all_cell: false")]
    for cell in notebook.cells:
        if cell.id in points:
            name = re.sub(r"\W", "_", cell.id.removesuffix("-stub"))
            question = f"# BEGIN QUESTION\nname: {name}\npoints: {points[cell.id]}"
            parts = [question, "# BEGIN SOLUTION", cell, "# END SOLUTION"]
        elif tagged(cell, "check"):
            parts = ["# BEGIN TESTS", cell, "# END TESTS", "# END QUESTION"]
        else:
            parts = [cell]
        cells += [v4.new_raw_cell(part) if isinstance(part, str) else part for part in parts]
    notebook.cells = cells
    return notebooks.nbformat.writes(notebook)


def for_learners(path: Path) -> str:
    """A notebook without outputs: a guess comes before its answer. Another file as it is."""
    return without_outputs(path.read_bytes()).decode()


def main() -> None:
    made = {"slides": (slides, "slides", ".slides.html"), "print": (printed_page, "print", ".html"),
            "nbgrader": (nbgrader, "nbgrader/source", ".ipynb"),
            "otter": (otter, "otter", ".ipynb"),
            "learners": (for_learners, "learners", ".ipynb")}  # fmt: skip
    if not sys.argv[1:] or sys.argv[1] not in made:
        raise SystemExit(__doc__)
    make, folder, ending = made[sys.argv[1]]
    paths = notebooks.paths(*(word for word in sys.argv[2:] if not word.startswith("--")))
    for path in [*paths, *(notebooks.FOLDER / name for name in LINKED if make is for_learners)]:
        # Graders want a folder for each assignment.
        target = BUILD / folder / (path.stem if make in (nbgrader, otter) else "")
        target.mkdir(parents=True, exist_ok=True)
        name = path.name if make is for_learners else f"{path.stem}{ending}"
        (target / name).write_text(make(path), encoding="utf-8", newline="\n")
        print(target.relative_to(BUILD.parent) / name)
    if make is for_learners:  # progress is kept here; empty, it conflicts with no update
        (BUILD / folder / RECORD).write_text("{}\n")


if __name__ == "__main__":
    main()
