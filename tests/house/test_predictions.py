"""Predictions on the short way: two in a box, and what an answer says of second readings."""

import re

import minutes
import notebooks
from mha_course.collection.questions import questions

BOOKS = {path.stem[:2]: notebooks.read(path) for path in notebooks.paths()}
QUESTIONS = questions()
FOLD = re.compile(r'<details name="(\w+)"><summary>(.*?)</summary>.*?<strong>(.*?)</strong>')


def test_on_the_short_way_a_box_is_two_questions_and_the_others_are_folded():
    for book in ("01", "02", "03", "04", "05", "06", "07", "11"):
        opened = {cell.id for cell in minutes.thread(BOOKS[book])}
        cells = [c for c in BOOKS[book].cells if "prediction" in c.metadata.get("tags", ())]
        assert [c.id in opened for c in cells] == [True, False]
        html = cells[0].outputs[0].data["text/html"]
        assert len({name for name, _, _ in FOLD.findall(html)}) == 2, book


def test_an_answer_in_an_open_box_says_where_it_leads_into_a_fold():
    opened = {
        book: {cell.id: cell for cell in minutes.thread(notebook)}
        for book, notebook in BOOKS.items()
    }
    headings = {
        (book, line.lstrip("# "))
        for book, thread in opened.items()
        for cell in thread.values()
        for line in re.findall(r"^#+ .*", cell.source, re.M)
    }
    cells = [cell for thread in opened.values() for cell in thread.values()]
    boxes = [cell for cell in cells if "prediction" in cell.metadata.get("tags", ())]
    names = {n for box in boxes for n, _, _ in FOLD.findall(box.outputs[0].data["text/html"])}
    assert len(names) > 20
    for choice in (c for name in names for c in QUESTIONS[name].choices.values()):
        if (choice.notebook, choice.heading) not in headings:
            assert "second reading" in choice.says.lower(), choice
