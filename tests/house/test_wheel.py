"""The wheel and the sdist: what is in them, and that a course runs from the wheel alone."""

import email
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import badges
import release_readme

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FROM, TO = ("data/", "notebooks/"), ("mha_lesson/data/", "mha_course/notebooks/")
MOST = 8_000_000  # bytes of an archive


def _build(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", folder], cwd=ROOT, check=True)


@pytest.fixture
def archives(shared_folder: Callable[..., Path]) -> Path:
    return shared_folder("archives", _build)


def tracked(*folders: str) -> set[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("an archive of the tree does not know which of its files count")
    listing = ["git", "ls-files", "-co", "--exclude-standard", *folders]
    found = subprocess.check_output(listing, cwd=ROOT, text=True)
    return {name for name in found.splitlines() if (ROOT / name).exists()}


def test_the_wheel_holds_packages_data_and_notebooks_and_says_what_the_readme_says(archives):
    [path] = archives.glob("*.whl")
    assert path.stat().st_size < MOST
    with zipfile.ZipFile(path) as wheel:
        [info] = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
        held = {name for name in wheel.namelist() if not name.startswith(info)}
        told = email.message_from_bytes(wheel.read(f"{info}/METADATA"))
    wanted = tracked("mha_lesson", "mha_course", *FROM)
    for old, new in zip(FROM, TO, strict=True):
        wanted = {new + name[len(old) :] if name.startswith(old) else name for name in wanted}
    assert held == wanted
    assert (told["Name"], told["Version"]) == (PROJECT["name"], PROJECT["version"])
    plain = [line for line in told.get_all("Requires-Dist") if "extra ==" not in line]
    assert not [line for line in plain if line.startswith(("jupyter", "ipykernel", "nbconvert"))]
    assert told["Description-Content-Type"].startswith("text/markdown")
    readme = (ROOT / "README.md").read_bytes()
    assert "urls" in PROJECT or told.get_payload(decode=True).strip() == readme.strip()


def test_no_link_of_a_released_readme_is_relative():
    """Where the wheel's page is shown there are no files beside it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    made = release_readme.absolute(text, "https://example.org/some/one/", "v7.5.3")
    relative = release_readme.TARGET.findall(text)
    assert relative and not re.search(r"""(\]\(|(src|href)=")(?!https:|#)""", made)
    for target in relative:
        assert re.search(rf"https://example.org/some/one/(raw|blob)/v7.5.3/{target}[)\"]", made)
        assert (ROOT / target.partition("#")[0]).exists()


# Binder and repo2docker take the first of these that is there, before environment.yml.
BEFORE_CONDA = ("Dockerfile", "binder", ".binder", "Project.toml", "REQUIRE")


def test_images_are_made_from_environment_yml():
    assert not [name for name in BEFORE_CONDA if (ROOT / name).exists()]
    # these would leave files out of the image
    assert not [name for name in (".dockerignore", ".containerignore") if (ROOT / name).exists()]
    environment = (ROOT / "environment.yml").read_text(encoding="utf-8")
    assert re.search(r"^  - jupyterlab==", environment, re.M) and "- -e ." in environment
    post_build = ROOT / "postBuild"
    assert os.access(post_build, os.X_OK) and "nbgitpuller" in post_build.read_text("utf-8")
    link = badges.links("https://github.com/some/one", "main", "notebooks/00_start_here.ipynb")
    assert (ROOT / link["Binder"].partition("lab/tree/")[2]).exists()


def test_the_sdist_holds_the_tree(archives):
    [path] = archives.glob("*.tar.gz")
    assert path.stat().st_size < MOST
    with tarfile.open(path) as sdist:
        held = {name.partition("/")[2] for name in sdist.getnames()}
    assert held - {"PKG-INFO"} == tracked()


# What a fresh environment has beforehand; the second as Colab has it, whose kernel is running.
BEFORE = {
    "empty": "ipykernel nbclient",
    "colab": """ipykernel==6.17.1 ipython==7.34.0 ipywidgets==7.7.1 jupyter-client==7.4.9 nbclient
        tornado==6.4.2 traitlets==5.7.1""",
}
NUMBERS = ("00", "01", "04", "06", "08", "12")
RUN = """
import json, sys
from datetime import date
from pathlib import Path
import nbformat
from nbclient import NotebookClient
from mha_course.lab import command as lab
lab.sync(lab.NOTEBOOKS, lab.working_copy(), date.today())
for number in sys.argv[1:]:
    [path] = lab.working_copy().glob(f"{number}_*.ipynb")
    ran = NotebookClient(nbformat.read(path, 4), timeout=1800, allow_errors=True,
                         resources={"metadata": {"path": str(path.parent)}}).execute()
    for cell in ran.cells:
        expected = "raises-exception" in cell.metadata.get("tags", [])
        for output in () if expected else cell.get("outputs", ()):
            if output.output_type == "error":
                print(json.dumps([number, output.ename, output.evalue, cell.source]))
"""


@pytest.mark.long
@pytest.mark.parametrize("before", BEFORE)
def test_notebooks_run_from_the_wheel_alone(before, archives, tmp_path):
    """In an empty folder; what the kernel that runs is made of stays as it was."""
    python = tmp_path / "env" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    venv.create(tmp_path / "env", with_pip=True)
    (tmp_path / "empty").mkdir()
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "MHA_LESSON"))}

    def run(*command: str | Path) -> str:
        words = [str(python), *map(str, command)]
        return subprocess.check_output(words, cwd=tmp_path / "empty", env=plain, text=True)

    def versions() -> set[str]:
        lines = run("-m", "pip", "freeze", "--all").splitlines()
        return {line for line in lines if line.startswith(("ipy", "jupyter", "tornado", "nb"))}

    run("-m", "pip", "install", "-q", *BEFORE[before].split())
    had = versions()
    run("-m", "pip", "install", "-q", *archives.glob("*.whl"))
    assert had <= versions()
    run("-m", "mha_course", "weights")
    assert [json.loads(line) for line in run("-c", RUN, *NUMBERS).splitlines()] == []


def test_git_sees_nothing_of_what_a_teacher_makes_in_a_clone():
    """A key is soon committed with everything else, and pushed to the class."""
    made = ["final_test/a", "final_test-2_key/a", "worksheets/a", "classroom_report/a"]
    assert tracked(".gitignore")
    found = subprocess.check_output(["git", "check-ignore", *made], cwd=ROOT, text=True)
    assert found.split() == made
