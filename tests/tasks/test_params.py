"""Parameters: one place for names, defaults and help; what is wrong is refused with the value and the remedy."""

from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from espalier.engine.errors import EspalierError
from espalier.engine.families import FAMILIES
from espalier.engine.optimise.solvers import SOLVERS
from espalier.tasks import params
from espalier.tasks.params import MOVED, Params, default_yaml, load_params

ROOT = Path(__file__).resolve().parents[2]


def load(tmp_path, text="", overrides=()):
    path = tmp_path / "params.yaml"
    path.write_text(text, encoding="utf-8")
    return load_params(path, list(overrides))


def refusal(tmp_path, text="", overrides=()):
    with pytest.raises(EspalierError) as caught:
        load(tmp_path, text, overrides)
    return str(caught.value)


# ---- the committed file


def test_the_committed_file_is_what_the_table_writes():
    assert (ROOT / "params.yaml").read_text(encoding="utf-8") == default_yaml()


def test_the_committed_file_gives_the_defaults_back():
    assert load_params(ROOT / "params.yaml") == Params()


def test_every_parameter_has_its_help_above_it():
    lines, section = default_yaml().split("\n"), None
    above = {}
    for before, line in zip(lines, lines[1:], strict=False):
        section = line[:-1] if line and line[0].isalpha() else section
        above[section, line.strip().partition(":")[0]] = before
    for name, values in Params().as_dict().items():
        helps = {item.name: item.metadata["help"] for item in fields(getattr(Params(), name))}
        assert set(helps) == set(values)
        for key, text in helps.items():
            assert above[name, key].startswith(f"  # {text}")


def test_every_default_passes_its_own_check(tmp_path):
    """A default outside its own limits or choices would be refused by the file that states it."""
    assert load(tmp_path, yaml.safe_dump(Params().as_dict())) == Params()


def test_the_solvers_offered_are_those_of_the_engine():
    assert params.SOLVERS == ("auto", *SOLVERS)
    assert len({solver.title for solver in SOLVERS.values()}) == len(SOLVERS)


# ---- values


def test_what_is_left_out_keeps_its_default(tmp_path):
    found = load(tmp_path, "crf:\n  rho1: 2\n")
    assert found.crf.rho1 == 2.0
    found.crf.rho1 = Params().crf.rho1
    assert found == Params()


@pytest.mark.parametrize("text", ["", "train:\n", "# nothing\n"])
def test_an_empty_file_or_section_is_all_defaults(tmp_path, text):
    assert load(tmp_path, text) == Params()


@pytest.mark.parametrize(
    ("written", "expected"), [("1e-4", 1e-4), ("1E3", 1000.0), ("0", 0.0), ("2", 2.0), (".5", 0.5), ("1.0e-4", 1e-4)]
)
def test_numbers_as_people_write_them(tmp_path, written, expected):
    found = load(tmp_path, f"crf:\n  rho1: {written}\n").crf.rho1
    assert found == expected and isinstance(found, float)
    assert load(tmp_path, "", [f"crf.rho1={written}"]).crf.rho1 == expected


def test_null_where_it_is_allowed(tmp_path):
    assert load(tmp_path, "ingest: {limit: null, path: null}").ingest.limit is None
    assert "expected a number" in refusal(tmp_path, "crf: {rho1: null}")


def test_overrides_win_and_the_last_one_counts(tmp_path):
    found = load(tmp_path, "crf: {rho1: 1}", ["crf.rho1=2", "crf.rho1=3", "template.lines=[U, 'B:%x[0,0]']"])
    assert found.crf.rho1 == 3.0
    assert found.template.lines == ["U", "B:%x[0,0]"]


def test_an_override_may_hold_an_equals_sign(tmp_path):
    assert load(tmp_path, "", ["ingest.path=a=b.conll"]).ingest.path == "a=b.conll"


def test_two_params_share_nothing():
    first = Params()
    first.template.lines.append("U:x")
    first.crf.rho1 = 9.0
    assert Params().template.lines[-1] != "U:x" and Params().crf.rho1 != 9.0


# ---- refusals


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("crf: {rho: 1}", "unknown parameter 'crf.rho': did you mean 'crf.rho"),
        ("train: {max_iteration: 1}", "unknown parameter 'train.max_iteration': did you mean 'train.max_iterations'?"),
        ("trian: {rho1: 1}", "unknown section 'trian': did you mean 'train'?"),
        ("trian:", "unknown section 'trian': did you mean 'train'?"),
        ("zzz: {a: 1}", "unknown section 'zzz': known are ingest, template"),
        ("1: {a: 1}", "unknown section '1': known are"),
        ("train: {qqqqqq: 1}", "unknown parameter 'train.qqqqqq': known are max_iterations, "),
        ("train: 3", "section train holds 3, expected keys with values"),
        ("train: [a]", "section train holds ['a'], expected keys with values"),
        ("- train", "expected sections such as `ingest:`, found list"),
        ("crf: {rho1: many}", "crf.rho1 is 'many', expected a number or auto"),
        ("crf: {rho2: auto}", "crf.rho2 is 'auto', expected a number"),
        ("crf: {rho1: true}", "crf.rho1 is True, expected a number"),
        ("crf: {rho1: [1]}", "crf.rho1 is [1], expected a number"),
        ("crf: {rho1: .nan}", "crf.rho1 is nan, expected a number"),
        ("crf: {rho1: .inf}", "crf.rho1 is inf, expected a number"),
        ("crf: {rho1: -1}", "crf.rho1 is -1, expected at least 0"),
        ("crf: {rho1: -1e-9}", "crf.rho1 is '-1e-9', expected at least 0"),
        ("train: {max_iterations: 0}", "train.max_iterations is 0, expected at least 1"),
        ("train: {max_iterations: 2.5}", "train.max_iterations is 2.5, expected a whole number"),
        ("train: {max_iterations: true}", "train.max_iterations is True, expected a whole number"),
        ("ingest: {limit: few}", "ingest.limit is 'few', expected a whole number or null"),
        ("crf: {start: 1}", "crf.start is 1, expected true or false"),
        (
            "crf: {solver: owlq}",
            "one of auto, lbfgs, owlqn, pqn, hybrid, sbcd, cd, cg-fr, cg-pr, iis, gis, sgd: did you mean 'owlqn",
        ),
        ("ingest: {path: 3}", "ingest.path is 3, expected a text or null"),
        ("ingest: {path: ''}", "ingest.path is '', expected a text or null"),
        ("template: {lines: U}", "template.lines is 'U', expected a list of texts"),
        ("template: {lines: []}", "template.lines is [], expected a list of texts"),
        ("template: {lines: [1]}", "template.lines is [1], expected a list of texts"),
        ("promote: {level: 95}", "promote.level is 95, expected at most 1"),
        ("weigh: {smoothing: 0}", "weigh.smoothing is 0, expected at least"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(tmp_path, text, expected):
    message = refusal(tmp_path, text)
    assert expected in message
    assert message.startswith(f"{tmp_path / 'params.yaml'}: ")


def test_all_that_is_wrong_is_told_at_once(tmp_path):
    text = "crf: {rho1: many, rho: 1}\ntrian: {seed: 1}\ntrain: {rho2: 1, seed: -1}\nweigh: 3\ngiven: {a: 1}\n"
    message = refusal(tmp_path, text, ["crf.rho2=x", "promote.level"])
    head, *lines = message.split("\n")
    file = f"  - {tmp_path / 'params.yaml'}: "
    assert head == f"{len(lines)} things are wrong:"
    assert [line.removeprefix(file).partition(":")[0].partition(",")[0] for line in lines] == [
        "train.rho2 is now crf.rho2", "crf.rho1 is 'many'", "unknown parameter 'crf.rho'", "unknown section 'trian'",
        "train.seed is -1", "section weigh holds 3", "unknown section 'given'", "  - --set", "  - --set promote.level",
    ]  # fmt: skip


def test_checks_of_a_section_wait_until_its_values_are_right(tmp_path):
    both = "template: {lines: null}\ningest: {dev_share: 1, source: nowhere}"
    assert refusal(tmp_path, both).startswith("2 things are wrong:")  # no word of shares
    assert "dev_share" in refusal(tmp_path, "template: {lines: null}\ningest: {dev_share: 1}")


def test_of_very_many_faults_the_first_are_told(tmp_path):
    message = refusal(tmp_path, "".join(f"section{i}: {{a: 1}}\n" for i in range(500)))
    assert message.startswith("500 things are wrong:") and message.endswith("\n  and 480 more")


def test_a_number_too_large_for_a_float_is_no_number(tmp_path):
    assert "expected a number" in refusal(tmp_path, f"crf: {{rho1: {'9' * 400}}}")


def test_shares_must_leave_something_to_train_on(tmp_path):
    message = refusal(tmp_path, "ingest: {dev_share: 0.5, test_share: 0.3, unlabelled_share: 0.2}")
    assert "dev_share + test_share + unlabelled_share is 1, expected less than 1" in message
    load(tmp_path, "ingest: {dev_share: 0.5, test_share: 0.3, unlabelled_share: 0.1}")


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("crf.rho1", "--set crf.rho1: expected section.key=value"),
        ("rho1=2", "--set rho1=2: expected section.key=value"),
        ("crf.rho=2", "--set: unknown parameter 'crf.rho'"),
        ("crf.rho1=x", "--set: crf.rho1 is 'x', expected a number"),
        ("crf.rho1=[", "--set crf.rho1=[: the value is not readable as YAML"),
        ("crf.rho1=&", "--set crf.rho1=&: the value is not readable as YAML"),
        ("ingest.path=2020-13-45", "--set ingest.path=2020-13-45: the value is not readable as YAML"),
        ("ingest.path=!!python/object:os.system x", "the value is not readable as YAML"),
    ],
)
def test_a_wrong_override_is_named(tmp_path, override, expected):
    assert expected in refusal(tmp_path, "", [override])


def test_bad_yaml_names_file_and_line(tmp_path):
    message = refusal(tmp_path, "crf:\n  rho1: 1\n\tstart: true\n")
    assert message.startswith(f"{tmp_path / 'params.yaml'}, line 3: not readable as YAML")


def test_a_file_that_is_no_utf8(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_bytes(b"ingest:\n  path: caf\xe9\n")
    with pytest.raises(EspalierError, match="params.yaml: not readable as YAML"):
        load_params(path)


def test_a_missing_file_names_the_remedy(tmp_path):
    with pytest.raises(EspalierError, match="nowhere.yaml: there is no parameter file; `espalier init` begins one"):
        load_params(tmp_path / "nowhere.yaml")


def test_a_folder_instead_of_a_file(tmp_path):
    with pytest.raises(EspalierError, match="cannot be read"):
        load_params(tmp_path)


# ---- where templates come from


def test_a_file_of_templates_takes_the_place_of_the_default(tmp_path):
    found = load(tmp_path, "template: {file: pattern.txt}")
    assert (found.template.file, found.template.lines) == ("pattern.txt", None)
    found = load(tmp_path, "template: {lines: null, file: pattern.txt}")
    assert (found.template.file, found.template.lines) == ("pattern.txt", None)
    assert load(tmp_path, "", ["template.file=pattern.txt"]).template.lines is None


def test_templates_come_from_one_place(tmp_path):
    both = "template.file is 'p' and template.lines holds templates too: expected one of them, set the other to null"
    assert both in refusal(tmp_path, "template: {file: p, lines: [U]}")
    assert both in refusal(tmp_path, "template: {lines: [U]}", ["template.file=p"])
    assert "template.lines and template.file are both null" in refusal(tmp_path, "template: {lines: null}")
    assert "template.lines is [], expected a list of texts or null" in refusal(tmp_path, "template: {lines: []}")


def test_rho1_may_be_left_to_the_data(tmp_path):
    (tmp_path / "params.yaml").write_text("crf: {rho1: auto}")
    assert load_params(tmp_path / "params.yaml").crf.rho1 == "auto"
    assert load_params(tmp_path / "params.yaml", ["crf.rho1=0.3"]).crf.rho1 == 0.3


BOMB = "a: &a [x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefghi", "bcdefghij", strict=True)
)
MERGES = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}]}}\n"
    for before, name in zip("abcdefghi", "bcdefghij", strict=True)
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BOMB, "params.yaml, line 4: not readable as YAML: more than 20 aliases (*)"),
        (MERGES, "more than 20 aliases (*)"),
        (
            "crf:\n  rho1: " + "[" * 5000,
            "line 2: not readable as YAML: more than 20 brackets or lists inside each other",
        ),
        ("{a: " * 5000, "more than 20 brackets"),
        ("- " * 5000, "more than 20 brackets"),
        ("crf: {rho1: " + "9" * 5000 + "}", "not readable as YAML"),
        ("crf: {rho1: 0x" + "f" * 500_000 + "}", "crf.rho1 is a int too large to show, expected a number"),
        ("crf: {solver: " + "x" * 900_000 + "}", "(900,000 characters)"),
        ("? " + "x" * 900_000 + "\n: 1", "(900,000 characters)"),
        ("train: {? " + "y" * 900_000 + " : 1}", "unknown parameter"),
        ("#" * (1 << 20) + "\n", "larger than 1,048,576 bytes, the most that is read of such a file"),
        ('ingest: {path: "\\ud800"}', r"ingest.path is '\ud800', expected a text or null"),
        ('template: {lines: ["U\\udfff"]}', "template.lines is"),
        ("crf: &t {rho1: [*t]}", "crf.rho1 is"),
    ],
)
def test_a_hostile_file_is_refused_in_a_short_message(tmp_path, text, expected):
    (tmp_path / "params.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(EspalierError) as caught:
        load_params(tmp_path / "params.yaml")
    assert expected in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("[" * 5000, "the value is not readable as YAML (more than 20 brackets or lists inside each other)"),
        ("[&a x, " + "*a, " * 21 + "]", "(more than 20 aliases (*))"),
        ("x" * 100_000, "(100,000 characters)"),
    ],
)
def test_a_hostile_override_is_refused_in_a_short_message(value, expected):
    with pytest.raises(EspalierError) as caught:
        load_params(Path("params.yaml"), [f"crf.rho1={value}"])
    assert expected in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_an_alias_or_two_are_fine(tmp_path):
    (tmp_path / "params.yaml").write_text("crf: {rho1: &r 0.25, rho2: *r}\n", encoding="utf-8")
    assert load_params(tmp_path / "params.yaml").crf.rho2 == 0.25


@pytest.mark.parametrize(
    ("written", "margin", "of_a_tenth"),
    [
        ("0.005", 0.005, 0.005),
        ("0", 0.0, 0.0),
        ("1e-3", 0.001, 0.001),
        ("2%", "2%", 0.002),
        ("'12.5%'", "12.5%", 0.0125),
    ],
)
def test_margins_are_shares_or_per_cents(tmp_path, written, margin, of_a_tenth):
    found = load(tmp_path, f"promote: {{margin: {written}, label_margin: {written}}}").promote
    assert found.margin == found.label_margin == margin
    assert params.margin_of(found.margin, 0.1) == pytest.approx(of_a_tenth)
    assert load(tmp_path, "", [f"promote.margin={written}"]).promote.margin == margin


@pytest.mark.parametrize("written", ["-0.1", "1.5", "-2%", "2 %", "two", "[1]", "true", "null", "1e400"])
def test_what_is_no_margin_is_refused(tmp_path, written):
    text = refusal(tmp_path, f"promote: {{margin: {written}}}")
    assert "promote.margin is " in text
    assert "expected a share from 0 to 1 such as 0.005, or one of the champion's errors such as 2%" in text


# ---- names of before there were families


def test_names_that_have_moved_are_told_all_at_once(tmp_path):
    text = "train: {rho1: 1, cluster: null, tolerance: 0.1, solver: pqn}"
    expected = "train.rho1 is now crf.rho1, train.cluster is now compute.cluster, train.solver is now crf.solver"
    assert f"{expected}: write them there" in refusal(tmp_path, text)
    with pytest.raises(EspalierError, match="--set: train.rho2 is now crf.rho2: write it there"):
        load(tmp_path, "", ["train.rho2=1"])
    for name, now in MOVED.items():
        section, key = now.split(".")
        assert hasattr(getattr(Params(), section), key) and not hasattr(Params().train, name.split(".")[1])


def test_every_family_has_a_section_of_its_own():
    params = Params()
    for family in FAMILIES:
        params.model.family = family
        assert params.of_family is getattr(params, family)


def test_choices_are_listed_once(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text("crf: {loss: hinge}\n", encoding="utf-8")
    with pytest.raises(EspalierError) as refused:
        load_params(path)
    assert str(refused.value).endswith("crf.loss is 'hinge', expected one of log, marginal, exponential")
