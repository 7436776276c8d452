"""The learner's copy: without outputs, unchanged by opening, with everything its links lead to."""

import json
import os
import re
from datetime import date, timedelta
from pathlib import Path

import nbformat
import pytest
from nbformat import v4
from nbformat.sign import NotebookNotary

import notebooks
from mha_course import check
from mha_course.lab import command as lab
from mha_course.lab import copies, practice
from mha_course.practice import journal

TODAY = date(2026, 11, 21)


def write(folder: Path, name: str, *sources: str) -> None:
    """A notebook that has run: a text, and a code cell for each source."""
    said = v4.new_output("stream", text="the answer\n")
    code = [
        v4.new_code_cell(source, id=f"c{i}", outputs=[said], execution_count=1)
        for i, source in enumerate(sources)
    ]
    folder.mkdir(exist_ok=True)
    made = v4.new_notebook(cells=[v4.new_markdown_cell("# √d_k", id="m"), *code])
    nbformat.write(made, folder / name)


@pytest.fixture
def course(tmp_path: Path) -> tuple[Path, Path]:
    source, mine = tmp_path / "notebooks", tmp_path / "mine"
    write(source, "a.ipynb", "x = 1", "y = 2")
    (source / "CLAIMS.md").write_text("[a](a.ipynb)")
    (source / "TEACHING.md").write_text("for teachers")
    lab.sync(source, mine, TODAY)
    return source, mine


def names(mine: Path) -> list[str]:
    return sorted(path.name for path in mine.iterdir() if path.name != copies.RECORD)


def change(path: Path, how) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    how(notebook)
    path.write_text(json.dumps(notebook), encoding="utf-8")


def test_the_copy_has_no_outputs_and_the_repository_keeps_them(course):
    source, mine = course
    copied = notebooks.read(mine / "a.ipynb")
    assert [c.source for c in copied.cells] == ["# √d_k", "x = 1", "y = 2"]
    assert not any(c.outputs or c.execution_count for c in copied.cells[1:])
    assert all(c.outputs for c in notebooks.read(source / "a.ipynb").cells[1:])
    assert lab.sync(source, mine, TODAY) == []


def test_the_first_picture_of_the_course_is_there_before_anything_has_run():
    first = json.loads(copies.without_outputs((lab.NOTEBOOKS / lab.FIRST).read_bytes()))
    seen = [cell for cell in first["cells"] if "text/html" in str(cell.get("outputs"))]
    assert [cell["id"] for cell in seen] == [copies.FIRST_PICTURE]


def test_the_lab_trusts_the_first_copy_as_it_was_written_and_none_that_was_changed(
    tmp_path, monkeypatch
):
    """From what it does not trust, JupyterLab cuts the style that dims pictures in the dark."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    lab.sync(lab.NOTEBOOKS, tmp_path, TODAY)
    copy = tmp_path / lab.FIRST

    def trusted() -> bool:
        return NotebookNotary().check_signature(notebooks.read(copy))

    assert not trusted()
    lab.trust(lab.NOTEBOOKS / lab.FIRST)
    assert trusted()
    change(copy, wrote)
    lab.sync(lab.NOTEBOOKS, tmp_path, TODAY)
    lab.trust(lab.NOTEBOOKS / lab.FIRST)
    assert not trusted()


def test_the_lab_opens_where_no_signature_can_be_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "file"))
    (tmp_path / "file").write_text("no folder")
    lab.trust(lab.NOTEBOOKS / lab.FIRST)


def test_an_explorer_says_that_it_wants_to_be_run_and_saving_it_unrun_is_no_change(tmp_path):
    source, mine = tmp_path / "notebooks", tmp_path / "mine"
    write(source, "a.ipynb", "explorer = 1", "from mha_course import explore\n\nexplore.flow()")
    lab.sync(source, mine, TODAY)
    plain, moving = notebooks.read(mine / "a.ipynb").cells[1:]
    assert not plain.outputs
    assert [output.data["text/plain"] for output in moving.outputs] == [copies.TO_RUN]
    nbformat.write(notebooks.read(mine / "a.ipynb"), mine / "a.ipynb")
    change(mine / "a.ipynb", cleared)  # as nbstripout does: no change either
    assert lab.sync(source, mine, TODAY) == []
    write(source, "a.ipynb", "explorer = 2", "explore.flow()")
    assert lab.sync(source, mine, TODAY) and "explorer = 2" in (mine / "a.ipynb").read_text()
    assert names(mine) == ["a.ipynb"]


def test_every_link_of_the_working_copy_leads_somewhere(tmp_path):
    lab.sync(lab.NOTEBOOKS, tmp_path, TODAY)
    for path in [*tmp_path.glob("*.ipynb"), *tmp_path.glob("*.md")]:
        text = path.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([\w./-]+\.(?:ipynb|md))(?:#[^)]*)?\)", text):
            assert (path.parent / target).exists(), f"{path.name}: {target}"
    assert "CLAIMS.md" in names(tmp_path) and "TEACHING.md" not in names(tmp_path)


def opened(notebook) -> None:
    """What JupyterLab does to a notebook that is opened and saved."""
    notebook["metadata"] |= {"language_info": {"name": "python", "version": "3.99"}, "widgets": {}}
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"])
        cell["metadata"]["trusted"] = True


def ran(notebook) -> None:
    notebook["cells"][1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "1.7 s"}]


def cleared(notebook) -> None:
    for cell in notebook["cells"]:
        cell |= {"outputs": []} if cell["cell_type"] == "code" else {}


def wrote(notebook) -> None:
    notebook["cells"][2]["source"] = "y = 3"


@pytest.mark.parametrize(("what", "is_work"), [(opened, False), (ran, True), (wrote, True)])
def test_opening_a_copy_is_no_change_and_working_in_it_is(course, what, is_work):
    source, mine = course
    change(mine / "a.ipynb", what)
    before = (mine / "a.ipynb").read_bytes()
    write(source, "a.ipynb", "x = 1", "y = 2", "z = 3")
    [line] = lab.sync(source, mine, TODAY)
    assert (f"a.updated-{TODAY}.ipynb" in names(mine)) == (str(TODAY) in line) == is_work
    assert ((mine / "a.ipynb").read_bytes() == before) == is_work
    assert lab.sync(source, mine, TODAY) == []


def test_new_outputs_in_the_repository_are_no_update(course):
    source, mine = course
    before = (mine / "a.ipynb").read_bytes()
    change(source / "a.ipynb", ran)
    assert lab.sync(source, mine, TODAY) == [] and (mine / "a.ipynb").read_bytes() == before


def test_a_notebook_that_left_the_course_stays_and_is_named_once(course):
    source, mine = course
    (source / "a.ipynb").unlink()
    assert lab.sync(source, mine, TODAY) == ["No longer in the course, yours stays: a.ipynb"]
    assert (mine / "a.ipynb").exists() and lab.sync(source, mine, TODAY) == []


def test_a_page_that_is_no_notebook_is_renewed_or_put_beside(course):
    source, mine = course
    (source / "CLAIMS.md").write_text("second")
    assert lab.sync(source, mine, TODAY) and (mine / "CLAIMS.md").read_text() == "second"
    (mine / "CLAIMS.md").write_text("my notes")
    for version in ("third", "fourth"):
        (source / "CLAIMS.md").write_text(version)
        lab.sync(source, mine, TODAY)
    beside = f"CLAIMS.updated-{TODAY}"
    assert names(mine) == ["CLAIMS.md", f"{beside}-2.md", f"{beside}.md", "a.ipynb"]
    assert (mine / "CLAIMS.md").read_text() == "my notes"


def test_the_copy_names_the_language_as_the_kernel_does():
    from ipykernel.ipkernel import IPythonKernel

    assert IPythonKernel.language_info == copies.LANGUAGE


# --- one table over all notebooks -------------------------------------------------------------


@pytest.fixture
def kernel(course, monkeypatch):
    """A kernel that runs in the learner's copy; call it for the next notebook's kernel."""

    def start(folder: Path = course[1]) -> None:
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        monkeypatch.setattr(journal, "_state", {})

    start()
    return start


def right(x, n_heads):
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def done() -> set[str]:
    return {name for *_, name, state in check.progress().rows if state == "done"}


def test_one_table_spans_all_notebooks_of_the_copy(course, kernel):
    assert journal.COPY == copies.RECORD
    check.split_heads(right)
    kernel()
    check.merge_heads(lambda x: x.transpose(1, 2).flatten(2))
    kernel(course[1] / "deeper")
    assert done() == {"split_heads", "merge_heads"} and check.progress().kept
    kept = [".practice.jsonl", ".progress.json", ".progress.json.lock"]
    assert names(course[1]) == [*kept, "CLAIMS.md", "a.ipynb", "deeper"]
    assert lab.sync(*course, TODAY) == []


def test_progress_can_be_turned_off_and_on(course, kernel):
    check.split_heads(right)
    check.progress(keep=False)
    kernel()
    check.split_heads(lambda x, n: x)
    table = check.progress()
    assert not table.kept and done() == set()
    assert (course[1] / journal.FILE).read_text() == "false"
    check.progress(keep=True)
    check.split_heads(right)
    kernel()
    assert done() == {"split_heads"}


def test_outside_the_copy_nothing_is_written_unasked(tmp_path, kernel):
    kernel(tmp_path / "elsewhere")
    check.split_heads(right)
    assert done() == {"split_heads"} and not check.progress().kept
    assert not list((tmp_path / "elsewhere").iterdir())


def test_practice_writes_into_my_notebooks(tmp_path, monkeypatch, capsys):
    mine = tmp_path / copies.MINE
    for name, value in (("_state", {}), ("_attempts", []), ("today", lambda: TODAY)):
        monkeypatch.setattr(journal, name, value)
    mine.mkdir()
    (mine / journal.COPY).write_text("{}")
    monkeypatch.chdir(mine)
    journal.remember(check.Report("rotate", False))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(journal, "today", lambda: TODAY + timedelta(1))
    practice.main([])
    [path] = mine.glob(f"practice_{TODAY + timedelta(1)}.ipynb")
    assert str(path) in capsys.readouterr().out
    assert "check.practice.rotate(rotate)" in path.read_text()


# --- the lab as it opens ----------------------------------------------------------------------


def test_settings_name_what_this_jupyterlab_knows():
    import jupyterlab

    share = Path(jupyterlab.__file__).parent / "schemas"
    if not share.is_dir():
        from jupyterlab.commands import get_app_dir

        share = Path(get_app_dir()) / "schemas"
    chosen = json.loads((lab.SETTINGS / "labconfig/default_setting_overrides.json").read_text())
    for plugin, settings in chosen.items():
        package, name = plugin.split(":")
        schema = json.loads((share / package / f"{name}.json").read_text(encoding="utf-8"))
        assert set(settings) <= set(schema["properties"]), plugin
    assert chosen["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"
    [viewer] = chosen["@jupyterlab/docmanager-extension:plugin"]["defaultViewers"].values()
    assert viewer == "Markdown Preview"


def test_the_lab_and_its_kernels_find_the_clone_first(monkeypatch):
    """Its settings and its package, before what was set up already."""
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "theirs")
    monkeypatch.setenv("PYTHONPATH", "")
    made = lab.environment()
    assert made["JUPYTER_CONFIG_PATH"] == os.pathsep.join((str(lab.SETTINGS), "theirs"))
    clone = Path(lab.__file__).parents[2]
    assert made["PYTHONPATH"] == str(clone)  # an empty part would be the current folder
    monkeypatch.setattr(lab, "IN_WHEEL", True)
    assert lab.environment()["PYTHONPATH"] == ""
