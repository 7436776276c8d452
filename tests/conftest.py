"""What every test runs under: checked annotations, one thread, fixed seeds.

- Annotations: jaxtyping's import hook puts beartype around the functions of the modules that name
  axes, so a wrong axis in an annotation, or a function that returns another shape than it says,
  fails a test. It takes three times as long, so only the tests of these rooms (`CHECKED`) do it.
  It would also refuse a wrong call before the package's own refusals can, so tests of refusals are
  marked `plain` (a test, a class, or a module by `pytestmark = pytest.mark.plain`): they get the
  errors that learners get.
- `device`: the device under test, the CPU unless `--device cuda` (or `pretend`, see `device/`);
  then only tests that use this fixture run, and `mha_lesson.device` is that one. Tests that use
  `no_cpu` (in `device/`) need such a device, and are left out on the CPU.
- `--absent` proves that a room's tests need no room above it (`house/test_house.py`).
- `long` marks what only `--all` runs (`make test-all`): trainings with other seeds, every position
  of every explorer, and what else CONTRIBUTING lists. Of the parameters of a test that is marked
  `one_in(n)`, the others, too.
- `shared_folder` makes what several files need, whichever worker runs them.
- `--forked-kernels` spares kernels most of their imports (see forks.py).
- The garbage collector skips all that was imported, and runs seldom: with Python's own settings it
  takes a tenth of the tests' time, and an eighth of the collection's.
- Full float32 products, also where somebody has turned TF32 on: its 10 bits are not what a
  tolerance of 1e-5 is about.
"""

import gc
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

if TYPE_CHECKING:
    import torch

# Files that take longest, begun first, so that none is left to one worker at the end.
LONGEST = [
    "test_check_answers", "test_explorers", "test_site_in_browser", "test_classroom",
    "07_training_the_heads", "test_states", "test_shipped", "09_cost_and_speed",
    "08_heads_of_a_real_model", "test_flow", "test_setup", "test_explore", "test_decoding",
    "test_handout", "test_check_catalogue", "test_notebooks", "test_figures", "test_motion",
    "test_claims_08", "test_pages", "test_pretrained", "12_bugs_that_shipped", "test_nothing_lost",
    "05_concatenation_and_output_projection", "test_website", "test_runs",
]  # fmt: skip

CHECKED = ("lesson", "collection")
gc.disable()  # until all tests are collected
gc.freeze()  # at its end, pytest collects five times


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="run the tests that use `device` on this one")
    parser.addoption("--all", action="store_true", help="run the long tests, too")
    parser.addoption("--forked-kernels", action="store_true", help="see tests/forks.py")
    parser.addoption("--absent", default="", help="modules that cannot be imported, with commas")


def pytest_configure(config: pytest.Config) -> None:
    sys.modules.update(dict.fromkeys(filter(None, config.getoption("--absent").split(","))))
    name = config.getoption("--device")
    if name != "cpu":
        os.environ["MHA_LESSON_DEVICE"] = name  # before the package is imported; kernels inherit it
    works = config.getoption("dist", "no") == "no"  # it runs tests, and does not hand them out
    if works:
        prepare(config)
    if config.getoption("--forked-kernels") and (name, sys.platform) == ("cpu", "linux"):
        import forks

        if not hasattr(config, "workerinput"):
            kernels = ExitStack()
            kernels.enter_context(forks.kernel_server())
            config.add_cleanup(kernels.close)
        # A process that has looked at a GPU, or macOS's own parts, can't be forked.
        if works and not sys.modules["torch"].cuda.is_available():
            forks.fork_kernels()
    if name == "cuda" and os.environ.get("NVIDIA_TF32_OVERRIDE") == "1":
        raise pytest.UsageError(
            "NVIDIA_TF32_OVERRIDE=1 makes CUDA multiply float32 with 10 bits whatever PyTorch "
            "asks for; these tests need full float32 products: unset it."
        )


def prepare(config: pytest.Config) -> None:
    """Before tests and packages are imported."""
    import jaxtyping
    import torch
    from hypothesis import settings

    import checked

    jaxtyping.install_import_hook(checked.NAMES_AXES, "checked.check_annotations")

    # One, since pytest-xdist already uses the cores.
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
    torch.set_float32_matmul_precision("highest")

    # The same examples in every run; `--hypothesis-profile=explore` looks further.
    settings.register_profile("fixed", deadline=None, max_examples=25, derandomize=True)
    settings.register_profile("all", settings.get_profile("fixed"), max_examples=50)
    settings.register_profile("explore", deadline=None, max_examples=1000)
    settings.load_profile("all" if config.getoption("--all") else "fixed")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[object]:
    """The first worker compiles what all import; the others wait for that."""
    config = session.config
    name = getattr(config, "workerinput", {}).get("workerid")
    compiled = Path(config.getoption("basetemp") or ".").parent / "compiled"
    while name not in (None, "gw0") and not compiled.exists():
        time.sleep(0.1)
    try:
        return (yield)
    finally:
        if name == "gw0":
            compiled.touch()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    on_the_cpu, every = config.getoption("--device") == "cpu", config.getoption("--all")
    seen: Counter[str] = Counter()

    def is_quick(item: pytest.Item) -> bool:
        if item.get_closest_marker("long"):
            return False
        if one_in := item.get_closest_marker("one_in"):
            seen[item.nodeid.split("[")[0]] += 1
            return seen[item.nodeid.split("[")[0]] % one_in.args[0] == 1
        return True

    chosen = [
        item
        for item in items
        for uses in [getattr(item, "fixturenames", ())]
        if ("no_cpu" not in uses if on_the_cpu else "device" in uses)
        if every or is_quick(item)
    ]
    config.hook.pytest_deselected(items=[*set(items).difference(chosen)])
    if not config.getoption("loadscopereorder", True):
        chosen.sort(key=lambda item: [*LONGEST, item.path.stem].index(item.path.stem))
    items[:] = chosen


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    import jaxtyping

    plain = item.get_closest_marker("plain") or item.path.parent.name not in CHECKED
    jaxtyping.config.update("jaxtyping_disable", bool(plain))


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> "torch.device":
    import torch

    return torch.device(request.config.getoption("--device"))


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`shared_folder(name, make)`: of this name, which `make(folder)` fills once in a run."""
    own = tmp_path_factory.getbasetemp()
    root = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def folder_of(name: str, make: Callable[[Path], object]) -> Path:
        with FileLock(root / f"{name}.lock"):
            if not (root / name).exists():
                unfinished = root / f"{name}.part"
                unfinished.mkdir(exist_ok=True)
                make(unfinished)
                unfinished.rename(root / name)
        return root / name

    return folder_of


@pytest.fixture(scope="session")
def site_of(shared_folder: Callable[..., Path]) -> Callable[..., Path]:
    """`site_of(published)`: a site of that model's files, its script, what it is told, and a page.

    Skips where the weights are not installed.
    """
    from mha_lesson.weights import WeightsMissing

    def folder_of(module: ModuleType) -> Path:
        def write(folder: Path) -> None:
            about = module.write(folder)
            (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")
            (folder / module.SCRIPT).write_text(module.script(about), encoding="utf-8")
            loads = f"<title>t</title><script src={module.SCRIPT}></script>"
            page = f"<!doctype html><meta charset=utf-8>{loads}"
            (folder / "index.html").write_text(page, encoding="utf-8")

        try:
            return shared_folder(f"site of {module.__name__}", write)
        except WeightsMissing as missing:
            pytest.skip(str(missing))

    return folder_of


@pytest.fixture(autouse=True)
def _seeds(request: pytest.FixtureRequest) -> None:
    import numpy as np
    import torch

    random.seed(0)
    np.random.seed(0)
    only_cpu = request.config.getoption("--device") == "cpu" and not torch.cuda.is_available()
    # For devices that are missing torch would record the whole stack, three times.
    (torch.default_generator if only_cpu else torch).manual_seed(0)


@pytest.fixture
def sitting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[date], None]:
    """A learner's folder, with an empty journal and a clock that the test sets: a Monday first."""
    from mha_course.practice import journal

    (tmp_path / journal.COPY).write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(journal, "_state", {})
    monkeypatch.setattr(journal, "_attempts", [])

    def on(day: date) -> None:
        monkeypatch.setattr(journal, "today", lambda: day)

    on(date(2026, 3, 2))
    return on
