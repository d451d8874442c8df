"""Where the templates of a project are written, and the files that they name."""

from pathlib import Path

from espalier.engine.errors import EspalierError
from espalier.engine.text.gazetteers import read_bounded, read_list
from espalier.engine.text.pattern_sets import is_shipped, shipped_lines
from espalier.engine.text.templates import Template, list_files, parse
from espalier.tasks.params import TemplateParams, check_templates

MOST_BYTES = 16 << 20  # of a file of templates


def template_lines(root: Path, options: TemplateParams) -> tuple[list[str], str]:
    """The lines of the templates, and the name of the place where they stand."""
    check_templates(options)
    if not options.file:
        return options.lines, "template.lines"
    if not is_shipped(options.file):
        return read_patterns(root / options.file), options.file
    try:
        return shipped_lines(options.file), options.file
    except EspalierError as error:
        raise EspalierError(f"template.file: {error}") from None


def read_patterns(path: Path) -> list[str]:
    """The lines of a file of templates in the form of Wapiti or CRF++."""
    try:
        data = read_bounded(path, MOST_BYTES)
        return data.decode("utf-8-sig").split("\n")
    except FileNotFoundError:
        raise EspalierError(f"template.file is {path}: there is no such file") from None
    except OSError as error:
        raise EspalierError(f"template.file is {path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise EspalierError(f"{path}, line {line}: is not UTF-8; save the file as UTF-8") from None


def named_lists(root: Path, options: TemplateParams) -> list[str]:
    """The files of the lists that the templates name; none of a file that is not there or comes along."""
    if options.file and (is_shipped(options.file) or not (root / options.file).is_file()):
        return []
    return list_files(parse(*template_lines(root, options)))


def read_templates(root: Path, options: TemplateParams) -> tuple[list[Template], dict[str, list[str]]]:
    """The templates of a project with their lists, and the lines of these lists by the names of their files."""
    lines, where = template_lines(root, options)
    lists = {name: read_list(root / name) for name in list_files(parse(lines, where))}
    return parse(lines, where, lists), lists
