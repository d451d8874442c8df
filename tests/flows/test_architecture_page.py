"""The pages name what is there: paths, functions, tests; and the map of docs/architecture.md holds every module."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest
from test_imports import ROOMS

ROOT = Path(__file__).resolve().parents[2]
MAP = ROOT / "docs" / "architecture.md"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FOLDERS = ("engine", "tasks", "flows")
OURS = re.compile(r"(?<![\w./-])((?:engine|tasks|flows|tests)/[\w./-]*)(?:::(\w+))?")
DOTTED = re.compile(r"(?<![\w./-])(?:espalier\.)?((?:engine|tasks|flows)(?:\.[A-Za-z_]\w*)+)")
WALK = "## The walk of a sentence"


def text_of(page):
    return page.read_text(encoding="utf-8")


def named_paths(text):
    """(path, test function or None) of what looks like a file or folder of ours."""
    return sorted({(path.rstrip("."), name or "") for path, name in OURS.findall(text)})


def section(text, heading):
    return text.split(f"{heading}\n")[1].split("\n## ")[0]


def looked_up(dotted):
    """What a dotted name below `espalier` stands for: a module, or what is reached from the longest one in it."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:end])
        if place.is_dir() or place.with_suffix(".py").is_file():
            found = import_module(".".join(["espalier", *parts[:end]]))
            for name in parts[end:]:
                found = getattr(found, name)
            return found
    raise ModuleNotFoundError(dotted)


def on_the_map(text):
    """(rooms and modules without one, modules in rooms) of the tables, as paths, in their order.

    A line with a path in the first cell begins a room; the lines with an empty one name a module each in the second.
    """
    heads, modules, room = [], [], None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) != 5:
            continue
        if re.fullmatch(r"`(?:engine|tasks|flows)/[\w/.]*`", cells[1]):
            room = cells[1].strip("`")
            heads.append(room)
        elif not cells[1] and re.fullmatch(r"`\w+`", cells[2]):
            modules.append(f"{room}{cells[2].strip('`')}.py")
    return heads, modules


def modules_of(folder):
    found = (path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*.py"))
    return {path for path in found if not path.endswith("__init__.py")}


# ---- names on all pages


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_of_ours_exists(page):
    missing = []
    for path, function in named_paths(text_of(page)):
        place = ROOT / path
        if not place.exists():
            missing.append(path)
        elif function:
            names = {node.name for node in ast.parse(text_of(place)).body if isinstance(node, ast.FunctionDef)}
            missing += [] if function in names else [f"{path}::{function}"]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_dotted_name_of_ours_can_be_imported(page):
    missing = []
    for name in sorted(set(DOTTED.findall(text_of(page)))):
        try:
            looked_up(name)
        except (ImportError, AttributeError) as error:
            missing.append(f"{name}: {error}")
    assert not missing


def test_the_walk_goes_through_all_rooms_of_code():
    """So few names would mean that the pattern has stopped to see them."""
    names = set(DOTTED.findall(section(text_of(MAP), WALK)))
    assert len(names) > 50
    assert {name.split(".")[0] for name in names} == set(FOLDERS)


def test_what_is_gone_would_be_seen():
    text = "`engine/old.py`, (`tasks/`), tests/engine/test_old.py::test_x. https://a.b/engine/c `espalier.tasks.old.f`"
    assert named_paths(text) == [("engine/old.py", ""), ("tasks/", ""), ("tests/engine/test_old.py", "test_x")]
    assert DOTTED.findall(text) == ["tasks.old.f"]
    with pytest.raises(AttributeError):
        looked_up("tasks.old.f")
    with pytest.raises(AttributeError):
        looked_up("engine.errors.Old")
    assert looked_up("engine.errors.EspalierError").__name__ == "EspalierError"


# ---- the map


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_module_stands_on_the_map_once(folder):
    heads, modules = on_the_map(text_of(MAP))
    named = [path for path in (*heads, *modules) if path.startswith(f"{folder}/") and path.endswith(".py")]
    there = modules_of(folder)
    assert len(there) > 10, "the test looks in the wrong place"
    assert sorted(there - set(named)) == [], "write a line for each in docs/architecture.md"
    assert sorted(set(named) - there) == [], "these are gone or elsewhere"
    assert len(named) == len(set(named))


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_room_has_a_head_on_the_map(folder):
    rooms = {f"{path.parent.relative_to(ROOT).as_posix()}/" for path in (ROOT / folder).rglob("__init__.py")}
    heads = {head for head in on_the_map(text_of(MAP))[0] if head.startswith(f"{folder}/") and head.endswith("/")}
    assert heads | {f"{folder}/"} == rooms | {f"{folder}/"}


def test_the_rooms_of_the_engine_stand_in_the_order_of_imports():
    heads = [head for head in on_the_map(text_of(MAP))[0] if head.startswith("engine/")]
    assert list(dict.fromkeys(Path(head).with_suffix("").parts[1] for head in heads)) == list(ROOMS)
