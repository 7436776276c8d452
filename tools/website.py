"""The course as a site, from the stored notebooks, in build/site; only some pages: NUMBER ...

    python tools/website.py [NUMBER ...]

Nothing is run but the explorers' pure functions, whose states go into the pages, so that they move
without a kernel. Pages load nothing from anywhere else: they open from a disk and from any server.
The models that take one's own text are written if `mha-lesson weights` has fetched them.
`make site` calls this.
"""

import base64
import gc
import hashlib
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
import textwrap
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import torch
from bs4 import BeautifulSoup, Tag
from jupyterlab_pygments import JupyterStyle
from nbformat import NotebookNode, v4
from PIL import Image
from pygments.formatters import HtmlFormatter

import badges
import notebooks
from from_npm import BUILD
from mha_course import explore
from mha_course.cells import predictions
from mha_course.explore import n00_cut, own_class
from mha_course.pages import folds, published, writing
from mha_course.pages.exporter import asset, exporter_of, inline
from mha_course.pictures import live
from mha_lesson.pretrained import WeightsMissing, weights_path

ROOT = BUILD.parent
SITE = BUILD / "site"
NAME = "Multi-head attention, understood"
README_SECTIONS = ("The course", "Begin", "Licence")
HEAD = """# Cut a word. What does the model say now?

<p class="lead">Attention lets a word take from the others what it needs. The wider a ribbon, the
more the last word takes. From that, a model writes the next word.</p>"""
BEGIN = (
    '<p class="begin"><a href="notebooks/00_start_here.ipynb">Begin at notebook 0</a> '
    '<a href="notebooks/01_scaled_dot_product_attention.ipynb">Go on to notebook 1</a></p>'
)
TYPED = {"explore-real_heads", "explore-cut"}  # explorers with a place for one's own sentence
WRITES = "explore-writes"  # the explorer with a place for one's own prompt
TO_RUN = (
    '<p class="run">Pictures move in this page. To run the code and have your answers checked, '
    '<a href="index.html#begin">open the course in JupyterLab</a>.</p>'
)
OWN_CLASS = "explore-own_class"
SOLVED = """<details class="solved"><summary>Solved? See it here with the course's class</summary>
<p>It is the solution of exercise 11, and all was computed beforehand. Your own class, and sentences
for it, run in JupyterLab; the model alone takes
<a href="08_heads_of_a_real_model.html#explore-real_heads">a sentence of yours on this site,
too</a>.</p>{}</details>"""
FATES = (
    "What three mistakes that stood in public code do to the loss of a small language model: one "
    "hides, one looks far too good, one fails. [Would you have merged it?]"
    "(notebooks/12_bugs_that_shipped.ipynb)"
)
TEXTS = {
    "WORDS": "Words and symbols",
    "TEACHING": "For teachers",
    "CLAIMS": "Claims, put to the test",
}
WEBP = "data:image/webp;base64,"
BADGE = re.compile(r"^\[?!\[.*?\]\(.*?\)(?:\]\(.*?\))?\n", re.M | re.S)
FILM = re.compile(r"(?:^.+\n)+\n<img [^>]*>\n", re.M)  # and its sentence: the page begins so
CODE = HtmlFormatter(style=JupyterStyle).get_style_defs(".highlight")
STYLED = {*re.findall(r"^\.highlight \.(\w+) {", CODE, re.M)} - {"w"}  # of pygments' classes
SPAN = re.compile(r'<span class="([a-z]{1,3}\d?)">([^<]*)</span>')
EXPLORER = re.compile(r"^explore\.(\w+)\((?:until=\"(\w+)\")?[^\n]*\)\s*$", re.M)
# 06 shows the same and more: both pages load its half megabyte. In 05 it opens at the sentence.
FLOW_OF_05 = 'explore.flow(until="output")'


def first_page() -> NotebookNode:
    """The first page: a word to cut, a picture of 00, the fates of 12, sections of the README."""
    readme = FILM.sub("", BADGE.sub("", (ROOT / "README.md").read_text(encoding="utf-8")))
    parts = re.split(r"^## (.*)\n", readme, flags=re.M)
    section = dict(zip(["", *parts[1::2]], parts[::2], strict=True))
    _, text = section[""].split("\n", 1)
    writes, step, flow = (without_code("00", name) for name in ("writes", "flow-text", "flow"))
    button = '<button type="button" class="next" hidden>next step</button>'
    head, *then = (v4.new_markdown_cell(part) for part in (HEAD, button, BEGIN, text, FATES))
    cells = [head, writes, step, flow, *then, without_code("12", "three")]
    for name in README_SECTIONS:
        cells.append(v4.new_markdown_cell(f"## {name}\n" + section[name].split("\n### ")[0]))
    return v4.new_notebook(cells=cells)


def without_code(number: str, name: str) -> NotebookNode:
    """A cell of a notebook, shown without its code."""
    [path] = notebooks.paths(number)
    cell = next(cell for cell in notebooks.read(path).cells if cell.id == name)
    cell.metadata["without_code"] = True
    return cell


def pages(paths: list[Path]) -> dict[str, tuple[str, NotebookNode]]:
    """Name -> title and cells of every page, in their order."""
    site = {"index": (NAME, first_page())}
    for path in paths:
        notebook = notebooks.read(path)
        site[path.stem] = (notebook.cells[0].source.splitlines()[0].lstrip("# "), notebook)
    for name, title in TEXTS.items():
        source = (notebooks.FOLDER / f"{name}.md").read_text(encoding="utf-8")
        site[name] = (title, v4.new_notebook(cells=[v4.new_markdown_cell(source)]))
    return site


def explorer_id(cell: NotebookNode) -> str:
    """The name of the explorer that a cell shows, explore-NAME or explore-NAME-UNTIL, or ""."""
    if cell.source.startswith("own_class.in_model("):
        return OWN_CLASS * has_weights()
    source = cell.source.replace(FLOW_OF_05, "explore.flow()")
    call = EXPLORER.search(source) if cell.cell_type == "code" else None
    return "-".join(filter(None, ("explore", *call.groups()))) if call else ""


def has_weights() -> bool:
    with suppress(WeightsMissing):
        return bool(weights_path())
    return False


def begins(cell: NotebookNode) -> str:
    """Where its explorer begins, if not where it does on other pages."""
    texts = [i for i, text in enumerate(n00_cut.stored()) if f'"{text}"' in cell.source]
    if FLOW_OF_05 in cell.source:
        return ' data-example="1"'
    return f' data-text="{texts[0]}"' if texts else ""


def prepare(notebook: NotebookNode) -> NotebookNode:
    """Explorers become places for their scripts; checks, which have not run, are left out."""
    folds.fold(notebook)
    ends = False  # the check that is left out may have been the last cell of a second reading
    for cell in reversed(notebook.cells):
        ends |= bool(cell.metadata.get("fold_ends"))
        if "check" not in cell.metadata.get("tags", ()):
            cell.metadata["fold_ends"], ends = ends, False
    notebook.cells = [
        cell
        for cell in notebook.cells
        if "check" not in cell.metadata.get("tags", ()) and cell.get("id") != "how-to-run"
    ]
    setup = [cell for cell in notebook.cells if cell.get("id", "").startswith("imports")]
    setup = [cell for cell in setup if "jupyter" in cell.metadata or cell.cell_type == "markdown"]
    notebook.cells = [cell for cell in notebook.cells if cell not in setup] + setup  # ideas first
    for cell in notebook.cells:
        if "prediction" in cell.metadata.get("tags", ()):
            del cell.outputs[1:]  # what a running notebook writes below the box
        if name := explorer_id(cell):
            still = "".join(o.data.get("text/html", "") for o in cell.outputs if "data" in o)
            html = f'<div id="{name}"{begins(cell)}>{still}</div>'  # page.js fetches its script
            html = SOLVED.format(html) if name == OWN_CLASS else html
            cell.outputs = [v4.new_output("display_data", {"text/html": html})]
    return notebook


def adapt(page: str, titles: dict[str, str]) -> BeautifulSoup:
    """Links lead to pages, named by their titles, or become plain text; wide parts scroll alone;
    ids are slugs; code has a span only where it has a colour.
    """
    page = SPAN.sub(lambda span: span[0] if span[1] in STYLED else span[2], page)
    soup = BeautifulSoup(page, "html.parser")
    main = soup.main
    for heading in main.find_all(["h1", "h2", "h3"], id=True):
        heading["id"] = slug(heading["id"])
        if link := heading.find("a", "anchor-link"):
            link.extract().clear()
            if not heading.find_parent("summary"):  # there it could not be told from what opens it
                link.extend([*heading.contents])
                heading.append(link)
    for link in main.find_all("a", href=True):
        target, _, anchor = link["href"].partition("#")
        name = Path(target).stem
        if not target:
            link["href"] = f"#{slug(anchor)}"
        elif name in titles and target.endswith((".ipynb", ".md")):
            link["href"] = f"{name}.html" + (f"#{slug(anchor)}" if anchor else "")
            if link.get_text() == name:
                link.string = titles[name]
        elif "://" not in target and not target.endswith(".html"):
            link.unwrap()  # a file that is no page: its name stays
    for coloured in main.select(".output pre span[style]"):
        coloured.unwrap()  # a traceback's code: on white its comments would hardly be seen
    for head in main.select("thead"):
        if not head.get_text(strip=True):
            head.decompose()
    for corner in main.find_all("th", string=None):
        if not corner.get_text(strip=True):
            corner.name = "td"
    for row in main.select(".text tbody tr"):  # who listens hears what a cell is about
        if first := row.find("td"):
            first.name, first["scope"] = "th", "row"
    for table in main.select(".text table"):
        table.wrap(soup.new_tag("div", attrs={"class": "scroll"}))
    for code in main.select(".highlight"):
        code["class"] = ["highlight", "scroll"]
    for formula in main.find_all("math", display="block"):
        formula.wrap(soup.new_tag("span", attrs={"class": "scroll"}))
    for figure in main.find_all("figure"):
        figure["class"] = "scroll"
        for rule in figure.find_all("style"):  # page.css has its own
            rule.decompose()
    return soup


def save_stills(soup: BeautifulSoup, folder: Path) -> None:
    """Still pictures become files: a quarter smaller, and the page is shown before they load."""
    for image in soup.select(f'img[src^="{WEBP}"]'):
        picture = base64.b64decode(str(image["src"]).removeprefix(WEBP))
        wide, high = Image.open(io.BytesIO(picture)).size
        image["height"] = str(
            round(int(str(image["width"])) * high / wide)
        )  # else the text below it jumps
        name = f"still-{hashlib.sha256(picture).hexdigest()[:12]}.webp"
        image["src"] = name
        (folder / name).write_bytes(picture)


def slug(heading: str) -> str:
    """A heading's id as GitHub writes it, and as the texts' links do."""
    return re.sub(r"[^\w\- ]", "", unquote(heading).lower()).replace(" ", "-")


def sections(soup: BeautifulSoup, name: str, title: str) -> list[dict[str, str]]:
    """What the search looks through: each heading with the text below it, without answers."""

    def section(id: str, heading: str) -> dict[str, str]:
        return {"page": name, "page_title": title, "id": id, "title": heading, "text": ""}

    found = [section("main", title)]
    for part in soup.select("main .text > *, main .output_html, main .output_text"):
        if part.name in ("h1", "h2") and part.get("id"):
            found.append(section(str(part["id"]), part.get_text()))
        elif part.name != "details" and not part.select("script, .mha-guess"):
            found[-1]["text"] += " " + plain_text(part)
    return [one for one in found if one["text"]]


def plain_text(part: Tag) -> str:
    """Its text as one types it into the search: formulas are letters and signs."""
    part = copy(part)
    for numbers in part.select("figure + details"):
        numbers.decompose()
    for formula in part.select("math"):
        formula.replace_with(str(formula["alttext"]))
    part.smooth()
    return " ".join(part.get_text(" ", strip=True).split())


def add_contents(soup: BeautifulSoup) -> None:
    """Lists the page's own sections below its name in the navigation."""
    inner = soup.new_tag("ul")
    for heading in soup.select("main h2[id]"):
        item, link = soup.new_tag("li"), soup.new_tag("a", href=f"#{heading['id']}")
        link.string = heading.get_text()
        item.append(link)
        if heading.find_parent("details", "second-reading"):
            item["class"] = "second"
        inner.append(item)
    soup.nav.find(string=" sections ").replace_with(inner)


def explorer_script(name: str) -> str:
    """The script of an explorer, with all its states; `name` as `explorer_id` gives it."""
    if name == OWN_CLASS:
        return live.states_script(solved(), name)
    _, kind, *until = name.split("-")
    options = {"until": until[0]} if until else {}
    return live.states_script(getattr(explore, kind)(**options), name)


def solution() -> str:
    """The class that 06 has as its solution."""
    [path] = notebooks.paths("06")
    [source] = notebooks.solutions(notebooks.read(path)).values()
    return source


def solved() -> live.Explorer:
    """What 06 ends with, for the class of its solution; a sentence that is typed needs a kernel."""
    names = {"torch": torch, "nn": torch.nn, "math": math}
    exec(solution(), names)
    explorer: live.Explorer = own_class.in_model(
        names["MultiHeadAttention"], label="the course's class"
    )
    del explorer.controls["text"]
    return explorer


def begin_process() -> None:
    """Of each of the two that make states, for pages; they end before garbage matters."""
    os.environ[live.EXPORT] = "1"
    torch.set_num_threads(1)
    gc.disable()


def build(folder: Path, paths: list[Path]) -> list[Path]:
    """Writes the site of these notebooks into `folder`, anew, and gives the files' paths."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    site = pages(paths)
    cells = [cell for _, notebook in site.values() for cell in notebook.cells]
    # The other way round, since `training` takes longest.
    names = sorted({explorer_id(cell) for cell in cells} - {""}, reverse=True)
    with ProcessPoolExecutor(2, initializer=begin_process) as pool:
        model = pool.submit(published.write, folder) if TYPED & {*names} else None
        heads = pool.submit(published.pictures) if "explore-real_heads" in names else None
        writer = pool.submit(writing.write, folder) if WRITES in names else None
        scripts = [pool.submit(explorer_script, name) for name in names]
        write_pages(folder, site)  # while the states are made
        for name, script in zip(names, scripts, strict=True):
            (folder / f"{name}.js").write_text(script.result(), encoding="utf-8")
        typed, asked = told(model, "a sentence"), told(writer, "a prompt")
    if typed:
        (folder / published.SCRIPT).write_text(published.script(typed), encoding="utf-8")
    if typed and heads:
        (folder / published.NAME / "heads.js").write_bytes(heads.result())
    if asked:
        (folder / writing.SCRIPT).write_text(writing.script(asked), encoding="utf-8")
    shared = live.script() + writing.offers(typed, asked)
    (folder / "explore.js").write_text(shared, encoding="utf-8")
    style = "\n".join([live.THEME["scale"], CODE, asset("site.css"), asset("folds.css")])
    (folder / "page.css").write_text(style, encoding="utf-8")
    (folder / "page.js").write_text(asset("site.js"), encoding="utf-8")
    shutil.copy(ROOT / ".github/preview.png", folder / "preview.png")  # where a link to it is shown
    return sorted(path for path in folder.rglob("*") if path.is_file())


def told(model: Future[dict[str, Any]] | None, text: str) -> dict[str, Any] | None:
    """What is told of a model's files; None where its weights are not installed."""
    try:
        return model.result() if model else None
    except WeightsMissing as missing:
        print(f"Nobody can type {text} on this site: {missing}")
        return None


def add_description(soup: BeautifulSoup) -> None:
    """A search engine shows the first sentences below the page's name."""
    words = " ".join(plain_text(part) for part in soup.select("main p")[:3])
    meta = soup.new_tag("meta", attrs={"name": "description"})
    meta["content"] = textwrap.shorten(words, 160, placeholder=" …")
    soup.head.append(meta)
    said = {"title": soup.title.get_text(), "description": meta["content"], "type": "website"}
    for name, content in (said | {"image": f"{badges.site(address())}preview.png"}).items():
        soup.head.append(soup.new_tag("meta", attrs={"property": f"og:{name}", "content": content}))


def address() -> str:
    """The repository's own address, or ""."""
    command = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
    url = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return re.sub(r"^git@([^:]+):", r"https://\1/", url).removesuffix(".git")


def add_host_links(soup: BeautifulSoup, links: dict[str, str]) -> None:
    """Below the title: hosts on which the notebook opens."""
    line = soup.new_tag("p", attrs={"class": "opens"})
    for name, href in links.items():
        line.append(soup.new_tag("a", href=href, string=f"Open in {name}"))
    if links and "Open in " not in soup.main.section.get_text():  # it may hold them already
        soup.main.h1.insert_after(line)


def write_pages(folder: Path, site: dict[str, tuple[str, NotebookNode]]) -> None:
    """Writes every page, and the index of the search."""
    exporter = exporter_of("site")
    titles = {name: title for name, (title, _) in site.items()}
    index: list[dict[str, str]] = []
    origin, files = address(), {path.stem: path for path in notebooks.paths()}
    for name, (title, notebook) in site.items():
        resources = {"title": title, "name": name, "titles": titles, "metadata": {"name": name}}
        page, _ = exporter.from_notebook_node(prepare(notebook), resources)
        soup = adapt(page, titles)
        add_description(soup)
        if path := files.get(name):
            soup.main.section.append(BeautifulSoup(TO_RUN, "html.parser"))
            add_host_links(soup, badges.links(origin, "main", f"notebooks/{path.name}"))
        add_contents(soup)
        save_stills(soup, folder)
        if soup.select(".second-reading"):
            soup.body.append(BeautifulSoup(inline("folds.js"), "html.parser"))
        if soup.select(".mha-guess"):
            soup.body.append(BeautifulSoup(predictions.script(), "html.parser"))
        index += sections(soup, name, title)
        (folder / f"{name}.html").write_text(str(soup), encoding="utf-8")
    (folder / "search.js").write_text(
        f"window.SECTIONS = {json.dumps(index, ensure_ascii=False)};\n", encoding="utf-8"
    )


def main() -> None:
    files = build(SITE, notebooks.paths(*sys.argv[1:]))
    sizes = {file: file.stat().st_size / 1e6 for file in files}
    models = {published.NAME, writing.NAME}
    on_demand = sum(size for file, size in sizes.items() if file.parent.name in models)
    print(
        f"{SITE.relative_to(ROOT)}: {len(files)} files, {sum(sizes.values()) - on_demand:.1f} MB, "
        f"and {on_demand:.1f} MB of published models, for who asks for them"
    )


if __name__ == "__main__":
    main()
