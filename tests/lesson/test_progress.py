"""The progress bar: it moves, it says what is left, and it leaves nothing behind."""

import io
import itertools
import re
import sys

import pytest
from jupyter_client.manager import start_new_kernel

from mha_lesson import progress
from mha_lesson.progress import Progress

TRAINING = """
from mha_lesson.models import RepeatModel
from mha_lesson.tasks import repeat_batches
from mha_lesson.training import predict_next, train
print("ready", flush=True)
run = train(RepeatModel(), repeat_batches(), predict_next, n_steps=10**6, learning_rate=1e-3)
"""
PATIENCE = 600  # seconds for what takes a few: a machine may be busy
QUESTION = "print(run.finished, 0 < len(run.losses) < 10**6)"


@pytest.fixture
def outputs(monkeypatch):
    """What a notebook would show, one entry for each change."""
    outputs = []

    class Handle:
        def update(self, data, raw):
            outputs.append(data)

    def display(data, raw, display_id):
        outputs.append(data)
        return Handle()

    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr(Progress, "redraw_after", 0.0)
    return outputs


def test_in_a_notebook_it_ends_as_it_began(outputs):
    with Progress(3, "a < b") as bar:
        for i in range(3):
            bar.advance(f"loss {i}")
    assert outputs[0] == outputs[-1] == {"text/html": ""}
    texts = [re.sub("<[^>]*>", "", data["text/html"]).strip() for data in outputs[1:-1]]
    assert [text.split(", ")[0] for text in texts] == [f"a &lt; b  {i} of 3" for i in (1, 2, 3)]
    assert [text.split(" · ")[1] for text in texts] == ["loss 0", "loss 1", "loss 2"]
    assert 'value="2" max="3" aria-label="a &lt; b"' in outputs[2]["text/html"]


def test_the_seconds_left_are_those_of_the_steps_left(outputs, monkeypatch):
    clock = itertools.count(0, 10)  # in seconds, one look for each step
    with Progress(4, "x") as bar:
        monkeypatch.setattr(progress.time, "monotonic", lambda: bar._started + next(clock) + 10)
        for _ in range(4):
            bar.advance()
    left = [re.search(r"(\d+) s left", data["text/html"])[1] for data in outputs[1:-1]]
    assert left == ["30", "20", "10", "0"]


def test_an_error_clears_the_bar(outputs):
    with pytest.raises(ZeroDivisionError), Progress(3, "x") as bar:
        bar.advance()
        raise ZeroDivisionError
    assert outputs[-1] == {"text/html": ""}


def test_it_is_drawn_ten_times_a_second_at_most(outputs, monkeypatch):
    clock = itertools.count()  # in milliseconds, one for each look at it
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock) / 1000)
    monkeypatch.setattr(Progress, "redraw_after", 0.1)
    with Progress(1000, "x") as bar:
        for _ in range(350):
            bar.advance()
    assert len(outputs) - 2 == 3


def test_in_a_terminal_it_is_wiped(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(Progress, "redraw_after", 0.0)
    with Progress(3, "letters") as bar:
        for _ in range(3):
            bar.advance("loss 1.23")
    text = terminal.getvalue()
    assert "letters: 3 of 3, 0 s left · loss 1.23" in text
    assert text.split("\r")[-1].strip() == "" and "\n" not in text


def test_a_log_stays_clean(capsys):
    with Progress(3, "letters") as bar:
        bar.advance()
    assert capsys.readouterr() == ("", "")


@pytest.mark.plain
@pytest.mark.parametrize("total", [0, 2.5])
def test_refuses_a_total_that_is_no_number_of_steps(total):
    with pytest.raises((TypeError, ValueError), match="total"):
        Progress(total, "x")


@pytest.mark.long
def test_stop_in_a_real_kernel_keeps_the_run():
    """The bar is one output, changed in place; the interrupt button loses nothing."""
    manager, client = start_new_kernel(PATIENCE, kernel_name="python3")
    messages = []

    def listen(message):
        messages.append((message["msg_type"], message["content"]))
        drawn = message["msg_type"] == "update_display_data"
        if drawn and "progress" in message["content"]["data"]["text/html"] and not stopped:
            stopped.append(True)
            manager.interrupt_kernel()

    try:
        stopped: list[bool] = []
        reply = client.execute_interactive(TRAINING, timeout=PATIENCE, output_hook=listen)
        assert reply["content"]["status"] == "ok"
        kinds = [kind for kind, _ in messages]
        assert stopped and kinds.count("display_data") == 1
        last = [content for kind, content in messages if kind == "update_display_data"][-1]
        assert last["data"] == {"text/html": ""}
        said = "".join(c["text"] for kind, c in messages if kind == "stream")
        assert re.search(r"Stopped after \d+ of 1000000 steps; the run so far is kept", said)

        messages.clear()
        client.execute_interactive(QUESTION, timeout=PATIENCE, output_hook=listen)
        assert ("stream", {"name": "stdout", "text": "False True\n"}) in messages
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
