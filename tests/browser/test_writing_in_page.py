"""The published writing model in a page: tokens, ribbons, cuts and words as torch has them."""

import base64
import functools
import http.server
import json
import random
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from test_model_in_page import SIGNS, mixed

import lab
from cut_by_hand import scores_by_hand
from mha_course import explore
from mha_course.base.scripts import bundle
from mha_course.explore import n14_writes
from mha_course.pages import published, writing
from mha_course.pages.exporter import asset
from mha_course.pictures import live
from mha_lesson import smollm
from mha_lesson.text import SENTENCE

FRANCE = "The capital of France is"
CUTS = [[23, 4, 3], [25, None, 1], [20, 7, None]]
PROMPTS = [
    FRANCE, SENTENCE, "def add(a, b):\n    return", "Up and down, left and", "A, B, C, D,", "a",
    "When Anna and Tom met, Tom hugged", "In 1969, 3 men flew to the moon — and 2 walked on it.",
    "The king put on his crown. The queen put on", "Mary gave the book to John because he",
    "The president of the United States lives in the White", "<|im_start|>user\nHi<|im_end|>\n",
    "The grass is green and the sky is", "naïve café, 3.14159", "日本語の", "😀 👩‍👩‍👧",
    "  two  spaces ",
    "The frog loves jam. The frog loves jam. The frog loves", "1 2 3 4 5 6", "Dear Sir or Madam,",
    "Once upon a time", "She plays the violin; he plays the", "To be or not to", "\n\n\n", "E = mc",
    "Monday, Tuesday, Wednesday,", "the cat sat on the mat " * 9, "Ein Hund und eine", "x" * 40,
    "import numpy as np\n\ndef softmax(x):\n    ",
]  # fmt: skip
# The worker's own class in the page, so that all its scores can be seen.
DIRECT = """async (about) => {{
  const {{ Writer }} = await import("data:text/javascript;base64,{writer}");
  window.writer = new Writer({{ about, wasm: {kernel} }});
}}"""
ASK = """(request) => new Promise(async (take) => {
  const all = [], source = await mhaWriting;
  source.ask(request, (told) => {
    all.push({ ...told, weights: told.weights && [...told.weights] });
    if (told.kind === "done" || told.kind === "error") take(all);
  });
})"""
READ = """async (prompt) => {
  for await (const _ of writer.answer({ prompt }));
  return writer.ids;
}"""
SITE = """<!doctype html><meta charset=utf-8><title>t</title><button class=theme></button>
<nav><details></details></nav><div class=find><input><ol></ol><span></span></div>
<main id=explore-writes></main>"""
PAGE = "<!doctype html><meta charset=utf-8><title>t</title><script src=writing.js></script>"


@pytest.fixture(scope="module")
def folder(site_of):
    return site_of(writing)


@pytest.fixture(scope="module")
def model():
    return smollm.load()


class Files(http.server.SimpleHTTPRequestHandler):
    """A server that hears when a page is done."""

    done = threading.Event()

    def log_message(self, *_) -> None:
        if self.path == "/done":
            self.done.set()


@pytest.fixture(scope="module")
def address(folder):
    """Where a server has it."""
    handler = functools.partial(Files, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()


@pytest.fixture
def page(tab, folder):
    """From a disk, without network."""
    page = tab(offline=True)
    page.goto((folder / "index.html").as_uri())
    return page


@pytest.fixture
def direct_page(page, folder):
    """`writer` is the worker's class in the page."""
    coded = base64.b64encode(bundle(published.SCRIPTS / "writer.js").encode()).decode()
    about = json.loads((folder / "about.json").read_text("utf-8"))
    page.evaluate(DIRECT.format(kernel=published.kernel(), writer=coded), about)
    return page


@pytest.mark.parametrize("place", ["disk", pytest.param("server", marks=pytest.mark.long)])
def test_a_prompt_is_answered_and_cut_as_torch_says(tab, folder, address, model, place):
    page = tab()
    asked = []
    page.on("request", lambda request: asked.append(request.url.rsplit("/", 1)[1]))
    page.goto((folder / "index.html").as_uri() if place == "disk" else address)
    assert not [name for name in asked if name.startswith(("layer", "words", "merges"))]
    told = page.evaluate(ASK, {"prompt": FRANCE, "cuts": CUTS, "write": 3})
    ids = model.encode(FRANCE)[0].tolist()
    [words] = [one["words"] for one in told if one["kind"] == "words"]
    assert words == model.pieces(torch.tensor(ids))
    scores, weights = scores_by_hand(model, ids, CUTS, len(ids) - 1)
    before = scores_by_hand(model, ids)[0][-1].softmax(0)
    ribbons = [one for one in told if one["kind"] == "ribbons"]
    assert [one["layer"] for one in ribbons] == [*range(30)]
    found = torch.tensor([one["weights"] for one in ribbons]).view(30, 9, -1)
    assert (found[:20] - weights[:20]).abs().max() < 2e-5  # later ones are those of no cut
    now = scores[-1].softmax(0)
    [listed] = [one["words"] for one in told if one["kind"] == "next"]
    best = now.topk(10).indices
    likely = {*best.tolist(), *before.topk(10).indices.tolist()}
    assert [one["word"] for one in listed[:10]] == model.pieces(best)
    assert {one["word"] for one in listed} == {*model.pieces(torch.tensor([*likely]))}
    for one in listed:
        [number] = [i for i in likely if model.pieces(torch.tensor([i])) == [one["word"]]]
        assert one["p"] == pytest.approx(now[number].item(), abs=2e-5)
        assert one["was"] == pytest.approx(before[number].item(), abs=2e-5)
    written = [one["word"] for one in told if one["kind"] == "written"]
    for word in written:  # the cuts hold for what is written
        last = scores_by_hand(model, ids, CUTS, words_before := len(words) - 1)[0][-1]
        assert model.pieces(last.topk(1).indices) == [word], words_before
        ids.append(int(last.argmax()))
    first = asked.index("layer-1.js")
    assert asked.index("layer-0.js") < first < asked.index("last.js")
    sizes = json.loads((folder / "about.json").read_text("utf-8"))["sizes"]
    # Four come at a time: what was asked for until the third layer bounds what the first waits for.
    assert sum(sizes.get(name[:-3], 0) for name in asked[:first]) < 9e6
    assert len(asked) == len({*asked})


@pytest.mark.long
def test_texts_have_the_ids_of_the_model_s_own_tokenizer(direct_page, model):
    joined = mixed("", " ", "\n", "  ")
    texts = [*SIGNS, *PROMPTS, *joined, "<|im_start|> <|im_startx <repo_name>"]
    assert len(texts) >= 300
    direct_page.evaluate(READ, FRANCE)
    got = direct_page.evaluate("texts => texts.map((text) => writer.pairs.encode(text))", texts)
    for text, ids in zip(texts, got, strict=True):
        assert ids == model.tokenizer.encode(text).ids, repr(text)


@pytest.mark.long
def test_scores_of_thirty_prompts_are_torch_s_through_cuts_made_and_undone(direct_page, model):
    assert len(PROMPTS) >= 30
    for prompt in PROMPTS:
        drawn = random.Random(prompt)
        ids = direct_page.evaluate(READ, prompt)
        assert ids == model.encode(prompt)[0].tolist()
        cuts: list[list[int | None]] = []
        for step in range(4):
            found = torch.tensor(direct_page.evaluate("(cuts) => [...writer.scores(cuts)]", cuts))
            expected = scores_by_hand(model, ids, cuts, len(ids) - 1)[0][-1]
            assert (found - expected).abs().max() < 2e-4, (prompt, cuts)
            assert (found.softmax(0) - expected.softmax(0)).abs().max() < 2e-5
            if step == 2:
                cuts = []
            for _ in range(drawn.randint(1, 3)):
                layer, head, column = (drawn.randrange(n) for n in (30, 9, len(ids)))
                cuts.append([layer, drawn.choice((head, None)), drawn.choice((column, None))])
            del cuts[: drawn.randint(0, 1)]


def uniform(seed: int):
    """mulberry32."""
    while True:
        seed = (seed + 0x6D2B79F5) & 0xFFFFFFFF
        t = (seed ^ seed >> 15) * (seed | 1) & 0xFFFFFFFF
        t ^= t + ((t ^ t >> 7) * (t | 61) & 0xFFFFFFFF) & 0xFFFFFFFF
        yield ((t ^ t >> 14) & 0xFFFFFFFF) / 2**32


@pytest.mark.long
@pytest.mark.parametrize(("temperature", "seed"), [(0, 0), (0.5, 3), (0.8, 4)])
def test_it_writes_what_torch_writes_from_the_same_draws(page, model, temperature, seed):
    request = {"prompt": FRANCE, "write": 20, "temperature": temperature, "seed": seed}
    told = page.evaluate(ASK, request)
    written = "".join(one["word"] for one in told if one["kind"] == "written")
    ids, draws, text = model.encode(FRANCE)[0].tolist(), uniform(seed), []
    for _ in range(20):
        scores = scores_by_hand(model, ids)[0][-1]
        if temperature == 0:
            text.append(int(scores.argmax()))
        else:
            far = (scores / temperature).softmax(0).double().cumsum(0) > next(draws)
            text.append(int(far.int().argmax()))
        if text[-1] < 17:  # special ones end it
            text.pop()
            break
        ids.append(text[-1])
    assert written == model.tokenizer.decode(text, skip_special_tokens=False)


@pytest.mark.long
def test_a_survey_cuts_every_wide_ribbon_alone(page, model):
    told = page.evaluate(ASK, {"prompt": FRANCE, "cuts": CUTS, "survey": 0.6})
    ids = model.encode(FRANCE)[0].tolist()
    scores, weights = scores_by_hand(model, ids)
    best = int(scores[-1].argmax())
    ones = [one for one in told if one["kind"] == "one"]
    assert sorted(one["cut"] for one in ones) == (weights >= 0.6).nonzero().tolist()
    for one in random.Random(1).sample(ones, 5):
        now = scores_by_hand(model, ids, [one["cut"]], len(ids) - 1)[0][-1].softmax(0)
        assert one["p"] == pytest.approx(now[best].item(), abs=2e-5)
        assert [one["word"]] == model.pieces(now.topk(1).indices)


@pytest.mark.long
def test_a_lost_network_is_said_and_what_came_is_not_asked_for_again(tab, folder, address):
    page = tab()
    page.goto(address)
    lost, asked = True, []

    def route(way) -> None:
        asked.append(way.request.url.rsplit("/", 1)[1])
        if asked.count("layer-1.js") == 1 and asked[-1] == "layer-1.js":
            way.fulfill(body="<!doctype html><title>Your password, please</title>")
        elif lost and len(asked) > 12:
            way.abort()
        else:
            way.continue_()

    page.route("**/model-*/*", route)
    told = page.evaluate(ASK, {"prompt": FRANCE})
    assert told[-1]["kind"] == "error" and "network" in told[-1]["text"]
    came, lost = asked[:12], False
    assert asked.count("layer-1.js") == 2
    asked.clear()
    assert page.evaluate(ASK, {"prompt": FRANCE})[-1]["kind"] == "done"
    assert not {*asked} & {*came}
    page.unroute("**/model-*/*")
    page.context.set_offline(True)
    try:
        told = page.evaluate(ASK, {"prompt": "Zebras hydroxylate quickly, 日本語"})
    finally:
        page.context.set_offline(False)
    assert told[-1]["kind"] == "done"


@pytest.mark.long
def test_what_is_asked_last_is_answered_and_what_begins_alike_is_kept(page):
    alone = {}
    for prompt in (FRANCE, "The capital of Italy is", "The capital", FRANCE + " Paris"):
        page.reload()
        alone[prompt] = page.evaluate(ASK, {"prompt": prompt})[-2]["words"]
    for prompt in ("The capital", FRANCE, "The capital of Italy is", FRANCE, FRANCE + " Paris"):
        page.evaluate(
            "async (prompt) => { (await mhaWriting).ask({ prompt, write: 40 }, () => {}); "
            "(await mhaWriting).ask({ prompt: prompt + ' the' , cuts: [[3, 4, 0]] }, () => {}); "
            "await new Promise((go) => { setTimeout(go, 60); }); }",
            prompt,
        )
        for one, other in zip(
            page.evaluate(ASK, {"prompt": prompt})[-2]["words"], alone[prompt], strict=True
        ):
            assert one["word"] == other["word"] and one["p"] == pytest.approx(other["p"], abs=1e-5)


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="no /proc here")
def test_a_tab_takes_at_most_220_mb(folder, address, tmp_path):
    """Without an inspector, which would keep what was fetched."""
    if lab.CHROMIUM is None:
        pytest.skip("no Chromium here")
    # A file that is not there is asked for when all is done: the server's handler says so.
    done = f"({ASK})({json.dumps({'prompt': SENTENCE, 'cuts': CUTS, 'write': 8})})"
    page = f"{PAGE}<script>{done}.then(() => fetch('done'))</script>"
    (folder / "memory.html").write_text(page, encoding="utf-8")
    url = address.replace("index", "memory")
    command = [lab.CHROMIUM, "--headless", "--no-sandbox", f"--user-data-dir={tmp_path}", url]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as browser:
        try:
            assert Files.done.wait(300)
            assert 100 < max(map(private, renderers(browser.pid))) < 220
        finally:
            browser.terminate()


def renderers(pid: int) -> Iterator[Path]:
    """Folders in /proc of the pages of a Chromium."""
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            folder = Path("/proc") / child
            if b"--type=renderer" in (folder / "cmdline").read_bytes():
                yield folder
            yield from renderers(int(child))


def private(process: Path) -> float:
    """MB that a process holds for itself."""
    rows = (process / "smaps_rollup").read_text().splitlines()
    return sum(int(row.split()[1]) for row in rows if row.startswith("Private")) / 1e3


@pytest.mark.long
def test_what_cannot_be_gone_on_with_says_why(page):
    for text, said in (("", "no word"), ("word" + " word" * 224, "225 tokens; at most 224")):
        told = page.evaluate(ASK, {"prompt": text})
        assert told[-1]["kind"] == "error" and said in told[-1]["text"], told[-1]


@pytest.fixture
def view(tab, folder, address):
    """The first screen's picture on a site with the model, and who answers for a file of it."""
    about = json.loads((folder / "about.json").read_text("utf-8"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(live.EXPORT, "1")
        states = live.states_script(explore.writes(), "explore-writes")
    scripts = asset("site.js"), writing.offers(None, about), live.script() + states
    made = "".join(f"<script>{script}</script>" for script in scripts)
    (folder / "view.html").write_text(SITE + made, encoding="utf-8")
    page = tab()
    page.goto(address.replace("index", "view"))
    page.locator("summary", has_text="your own sentence").click()
    yield page
    page.unroute_all(behavior="ignoreErrors")


def test_one_s_own_sentence_is_seen_as_it_comes_cut_and_written_on(view, model):
    held, text = [], "The capital of Italy is"
    view.route("**/layer-1.js", lambda way: held.append(way))
    caption, button = view.locator(".mha-caption"), partial(view.get_by_role, "button")
    view.get_by_label("your own sentence").fill(text)
    assert "98 in all" in view.locator(".mha-own > span").text_content()
    button(name="Read it").click()
    caption.filter(has_text="1 of its 30 layers").wait_for()
    view.locator(".mha-lens", has_text="in layer 0, all nine heads").wait_for()
    menu, says = view.get_by_role("combobox", name="prompt"), "menu => menu.selectedOptions[0].text"
    assert menu.evaluate(says) == text
    assert view.locator(".mha-flowing").bounding_box()["y"] >= 0  # it came into sight
    assert view.locator(".mha-own > span").text_content().endswith(" of 98 MB")
    [way] = held
    way.continue_()
    caption.filter(has_text="% sure").wait_for()
    asked = n14_writes.Prompt(model, text)
    was, left = asked.next([[], [(layer, None, 3) for layer in n14_writes.LATE]])
    best = was.argmax()
    view.locator(".mha-word", has_text="Italy").click()
    caption.filter(has_text=f"from {was[best]:.0%} to {left[best]:.0%}").wait_for()
    assert [view.locator(".mha-answer").text_content()] == [
        piece.strip() for piece in model.pieces(left.argmax()[None])
    ]
    link = view.url
    button(name="Put it back").click()
    button(name="Write on").click()
    written = "".join(model.write(text, 6))
    view.locator(".mha-text", has_text=text + written).wait_for()
    view.get_by_role("slider", name="layer").fill("2")
    caption.filter(has_text="Layer 2, head 4").wait_for()
    assert menu.evaluate(says) == text
    menu.select_option(FRANCE)  # which was chosen before
    view.locator(".mha-answer", has_text="Paris").wait_for()
    assert menu.evaluate(says) == FRANCE
    view.unroute_all()
    view.goto("about:blank")
    view.goto(link)
    caption.filter(has_text=f"“{text}”, with 1 cut. It waits for the model").wait_for()
    button(name="Get the model").click()
    caption.filter(has_text=f"from {was[best]:.0%} to {left[best]:.0%}").wait_for()


@pytest.mark.long
def test_a_link_brings_golf_with_one_s_own_sentence_back(view):
    caption, button = view.locator(".mha-caption"), partial(view.get_by_role, "button")
    view.get_by_label("your own sentence").fill("To be or not to")
    button(name="Read it").click()
    button(name="Cut golf: this sentence").click()
    caption.filter(has_text="fewest cuts").wait_for()
    assert view.locator(".mha-tee button").count() == 10
    for cut in (0, 1):
        view.locator(".mha-tee button").nth(cut).click()
        caption.filter(has_text=f"{cut + 1} cut").wait_for()
    button(name="Put all back").wait_for()
    link, said = view.url, caption.text_content()
    view.goto("about:blank")
    view.goto(link)
    button(name="Get the model").click()
    caption.filter(has_text=said).wait_for()
    assert view.locator(".mha-tee [aria-pressed=true]").count() == 2


@pytest.mark.long
def test_a_lost_network_is_said_where_one_looks_and_tried_once_more(view):
    view.route("**/layer-2.js", lambda way: way.abort())
    view.get_by_label("your own sentence").fill("To be or not to")
    view.get_by_role("button", name="Read it").click()
    caption = view.locator(".mha-caption").filter(has_text="network")
    caption.wait_for()
    view.unroute_all()
    view.get_by_role("button", name="Try once more").click()
    view.locator(".mha-caption").filter(has_text="% sure").wait_for()


def test_a_browser_without_simd_is_told_so_and_nothing_is_fetched(tab, tmp_path, monkeypatch):
    about = {
        "folder": "none",
        "shard": 2,
        "first": [],
        "parts": {"merges": []},
        "sizes": {"merges": 9},
    }
    plain = "WebAssembly.validate = () => false;\n"
    monkeypatch.setattr(writing, "bundle", lambda entry: plain + bundle(entry))
    (tmp_path / "writing.js").write_text(writing.script(about), encoding="utf-8")
    (tmp_path / "index.html").write_text(PAGE, encoding="utf-8")
    page, asked = tab(offline=True), []
    page.goto((tmp_path / "index.html").as_uri())
    page.on("request", lambda request: asked.append(request.url))
    [told] = page.evaluate(ASK, {"prompt": FRANCE})
    assert told["kind"] == "error" and "SIMD" in told["text"]
    assert not [url for url in asked if "none" in url]
