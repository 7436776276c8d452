"""Predictions on the short way: two in a box, and what an answer says of second readings."""

import re

import notebooks
from mha_course.base import notebook as stored
from mha_course.collection.questions import questions

BOOKS = {path.stem[:2]: notebooks.read(path) for path in notebooks.paths()}
QUESTIONS = questions()
FOLD = re.compile(r'<details name="(\w+)"><summary>(.*?)</summary>.*?<strong>(.*?)</strong>')


def test_on_the_short_way_a_box_is_two_questions_and_the_others_are_folded():
    for book in ("01", "02", "03", "04", "05", "06", "07", "11"):
        opened = {cell.id for cell in stored.open_thread(BOOKS[book].cells)}
        cells = [c for c in BOOKS[book].cells if "prediction" in c.metadata.get("tags", ())]
        assert [c.id in opened for c in cells] == [True, False]
        html = cells[0].outputs[0].data["text/html"]
        assert len({name for name, _, _ in FOLD.findall(html)}) == 2, book


def test_an_answer_in_an_open_box_says_where_it_leads_into_a_fold():
    opened = {
        book: {cell.id: cell for cell in stored.open_thread(notebook.cells)}
        for book, notebook in BOOKS.items()
    }
    headings = {
        (book, words)
        for book, thread in opened.items()
        for words in stored.headings(thread.values())
    }
    cells = [cell for thread in opened.values() for cell in thread.values()]
    boxes = [cell for cell in cells if "prediction" in cell.metadata.get("tags", ())]
    names = {n for box in boxes for n, _, _ in FOLD.findall(box.outputs[0].data["text/html"])}
    assert len(names) > 20
    for choice in (c for name in names for c in QUESTIONS[name].choices.values()):
        if (choice.notebook, choice.heading) not in headings:
            assert "second reading" in choice.says.lower(), choice
