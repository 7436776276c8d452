"""The published models' files beside the pages, and the kernel that its source makes."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import kernel
from mha_course.pages import published
from mha_lesson import pretrained

HANDED_ON = re.compile(rb'mhaPart\("(.+?)","(.*)"\);\n', re.S)
ESCAPED = {b"\\n": b"\n", b"\\r": b"\r"}


@pytest.fixture
def written(site_of):
    folder = site_of(published)
    return folder, json.loads((folder / "about.json").read_text("utf-8"))


def handed_on(path: Path) -> bytes:
    name, text = HANDED_ON.fullmatch(path.read_bytes()).groups()
    assert name.decode() == path.stem and not {*text} & {*b"\n\r"}
    return re.sub(rb"\\.", lambda pair: ESCAPED.get(pair[0], pair[0][1:]), text)


def numbers(path: Path) -> np.ndarray:
    return np.frombuffer(handed_on(path), "<f2")


def test_files_hold_every_number_once_in_float16(written):
    folder, about = written
    model = pretrained.load()
    tensors, files = model.encoder.state_dict(), folder / about["folder"]
    seen = set()
    for part, listed in about["parts"].items():
        if part.startswith(("vocabulary", "words-")):
            continue
        values, at = numbers(files / f"{part}.js"), 0
        for name, raw, length in listed:
            assert raw == 0
            kept = name if name in tensors else f"{name}.weight"
            expected = tensors[kept].numpy().ravel()[:length].astype("<f2")
            assert (values[at : at + length] == expected).all(), name
            at += length
            seen.add(kept)
        assert at == len(values)
    layers = {name for name in tensors if name.startswith("layers.")}
    assert seen == layers | {"positions.weight", "segments.weight", "norm.weight", "norm.bias"}
    words = [numbers(files / f"words-{i}.js") for i in range(len([*files.glob("words-*.js")]))]
    assert (np.concatenate(words) == tensors["words.weight"].numpy().ravel().astype("<f2")).all()


def test_the_folder_is_named_after_the_model_and_its_sizes_are_true(written):
    folder, about = written
    files = {path.stem: path.stat().st_size for path in (folder / about["folder"]).iterdir()}
    assert about["folder"].endswith(pretrained.PACKAGE.sha256[pretrained.WEIGHTS][:12])
    assert about["sizes"] == files and about["all"] == sum(files.values())
    asked = [size for name, size in files.items() if not name.startswith("words-")]
    assert about["bytes"] == sum(asked) and max(files.values()) < 2e6


def test_the_vocabulary_has_every_piece_at_its_id(written):
    folder, about = written
    pieces = handed_on(folder / about["folder"] / "vocabulary.js").decode().split("\n")
    assert {piece: i for i, piece in enumerate(pieces)} == pretrained.tokenizer().get_vocab()


@pytest.mark.long
def test_the_kernel_is_what_its_source_makes(tmp_path):
    try:
        kernel.compile_to(tmp_path / "kernel.wasm")
    except SystemExit as no_npm:
        pytest.skip(str(no_npm))
    made = (tmp_path / "kernel.wasm").read_bytes()
    assert made == (published.SCRIPTS / "kernel.wasm").read_bytes()
