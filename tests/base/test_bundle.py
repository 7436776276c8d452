"""Scripts become one module in the order of their imports, in whatever folder they lie."""

from graphlib import CycleError

import pytest

from mha_course.base.scripts import bundle


def write(folder, **scripts: str) -> None:
    for name, text in scripts.items():
        path = folder / f"{name.replace('__', '/')}.js"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_each_file_once_after_those_it_imports(tmp_path):
    write(
        tmp_path,
        room__entry='// Says so.\nimport { b } from "./b.js";\n'
        'import {\n  a, c,\n} from "../a.js";\n'
        "export default a + b + c;\n",
        room__b='import { a } from "../a.js";\n  // why\nexport const b = a + 1;\n',
        a="export const a = 1;\n  export const c = 2; // beside\n",
    )
    made = bundle(tmp_path / "room/entry.js")
    assert made.splitlines() == [
        "export const a = 1;",
        "export const c = 2; // beside",
        "export const b = a + 1;",
        "export default a + b + c;",
    ]


def test_a_circle_is_refused(tmp_path):
    write(tmp_path, a='import { b } from "./b.js";\n', b='import { a } from "./a.js";\n')
    with pytest.raises(CycleError):
        bundle(tmp_path / "a.js")
