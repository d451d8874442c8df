"""The schema for editors says what the parameters take: neither more nor less."""

import json
from dataclasses import fields

import pytest
import yaml

from espalier.engine.errors import EspalierError
from espalier.tasks.params import Params, default_yaml, load_params
from espalier.tasks.params_schema import schema

jsonschema = pytest.importorskip("jsonschema")
VALUES = [
    None, True, False, 0, 1, 2, -1, 9, 10, 0.5, 1.5, 0.0001, -0.1, 1e9 + 0.5, "", "a", "auto", "2%", "12.5%", "-2%",
    "200", [], ["a"], ["U", "B"], [1], {}, {"a": 1},
]  # fmt: skip


@pytest.fixture(scope="module")
def validator():
    jsonschema.Draft7Validator.check_schema(schema())
    return jsonschema.Draft7Validator(json.loads(json.dumps(schema())))


def test_the_defaults_are_valid(validator):
    validator.validate(yaml.safe_load(default_yaml()))
    validator.validate({"ingest": None})


@pytest.mark.parametrize("section", [section.name for section in fields(Params)])
def test_a_value_is_valid_when_it_is_taken(validator, tmp_path, section):
    for item in fields(getattr(Params(), section)):
        for value in [*VALUES, *item.metadata["choices"]]:
            data = {section: {item.name: value}}
            path = tmp_path / "params.yaml"
            path.write_text(yaml.safe_dump(data), encoding="utf-8")
            try:
                load_params(path)
                taken = True
            except EspalierError as error:
                taken = f"{section}.{item.name} is" not in str(error)  # else only the whole is at fault
            if isinstance(value, str) and item.metadata["kind"].startswith(("number", "margin")):
                taken = taken and validator.is_valid(data)  # a number in quotes is taken, and not offered
            assert validator.is_valid(data) == taken, data


def test_unknown_names_are_not_valid(validator):
    assert not validator.is_valid({"crf": {"rho": 1}})
    assert not validator.is_valid({"trian": {}})


def test_every_parameter_has_its_help_and_default():
    found = schema()["properties"]
    assert found["crf"]["properties"]["rho1"]["default"] == Params().crf.rho1
    assert all(one["description"] for section in found.values() for one in section["properties"].values())
