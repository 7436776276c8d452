"""The first page: it says what is missing, and what to do about it."""

import pytest
import torch

from mha_course.cells import selfcheck
from mha_lesson import pretrained, text


def missing() -> dict[str, str]:
    return {line.what: line.remedy for line in selfcheck.everything().lines if line.remedy}


@pytest.fixture(autouse=True)
def _weights_or_not(monkeypatch):
    """They are a part of the set-up that may be left out."""
    monkeypatch.setattr(pretrained, "weights_path", lambda: None)


def test_where_all_is_there_nothing_is_missing():
    before = torch.get_rng_state()
    assert missing() == {}
    assert torch.equal(torch.get_rng_state(), before), "a learner's random numbers are left alone"
    said = str(selfcheck.everything()).splitlines()
    assert len(said) == 5 and all(line.startswith("ok  ") for line in said)


@pytest.mark.parametrize("module", ["matplotlib", "ipywidgets", "anywidget"])
def test_a_missing_package_is_named_with_the_command_that_brings_it(monkeypatch, module):
    find = selfcheck.find_spec
    monkeypatch.setattr(selfcheck, "find_spec", lambda n: None if n == module else find(n))
    [(what, remedy)] = missing().items()
    assert module in what and remedy == f"install it with: pip install {module}"


@pytest.mark.parametrize("version", ["2.5.1", "1.13.0+cu117"])
def test_an_old_torch_is_named(monkeypatch, version):
    monkeypatch.setattr(torch, "__version__", version)
    [(what, remedy)] = missing().items()
    assert "PyTorch 2.6" in what and version in remedy


@pytest.mark.parametrize("version", ["2.6.0", "2.11.0+cpu", "3.0.0"])
def test_a_later_torch_is_enough(monkeypatch, version):
    monkeypatch.setattr(torch, "__version__", version)
    assert missing() == {}


def test_a_torch_that_computes_nonsense_is_found(monkeypatch):
    monkeypatch.setattr(
        selfcheck.MultiHeadAttention, "forward", lambda self, x: torch.full_like(x, torch.nan)
    )
    [remedy] = missing().values()
    assert "not finite" in remedy


@pytest.mark.parametrize("error", [OSError, ValueError, RuntimeError, ImportError])
def test_what_stands_in_the_way_is_said_and_escaped(monkeypatch, error):
    def look():
        raise error("no <data> here")

    monkeypatch.setattr(text, "sentence", look)
    assert list(missing().values()) == ["no <data> here"]
    assert "missing  the sentence and its vectors: no <data> here" in str(selfcheck.everything())
    page = selfcheck.everything()._repr_html_()
    assert "no &lt;data&gt; here" in page and "<data>" not in page
    assert page.count("✓") == 4 and page.count("✗") == 1


def test_missing_weights_are_for_one_notebook_only(monkeypatch):
    def look():
        raise ImportError("no weights")

    monkeypatch.setattr(pretrained, "weights_path", look)
    [(what, remedy)] = missing().items()
    assert "notebook 8" in what and remedy == "no weights"
