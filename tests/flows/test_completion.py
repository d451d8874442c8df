"""Completion: what real shells propose, and that every script names all there is."""

import os
import pty
import re
import select
import shutil
import subprocess
import time

import pytest

from espalier.flows import cli
from espalier.flows.completion import script

PARAMETERS = ["crf.rho1", "crf.rho2", "train.seed"]


@pytest.fixture
def proposed(tmp_path):
    """What bash proposes for lines whose last word is being written: a list of words for each."""
    if not shutil.which("bash"):
        pytest.skip("no bash here")
    (tmp_path / "script").write_text(script("bash", cli.DECLARED, cli.BEFORE, PARAMETERS), encoding="utf-8")

    def ask(*lines):
        calls = [
            f"COMP_WORDS=({' '.join(repr(word) for word in line)}); COMP_CWORD={len(line) - 1}; _espalier; "
            'echo "${COMPREPLY[*]}"'
            for line in lines
        ]
        text = "\n".join(["set -u", "source ./script", *calls, "complete -p espalier"])
        done = subprocess.run(["bash", "--norc", "-c", text], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0 and done.stderr == ""
        *found, declared = done.stdout.splitlines()
        assert "-F _espalier espalier" in declared
        return [line.split() for line in found]

    return ask


def test_bash_proposes_commands_options_words_and_parameters(proposed):
    first, few, stages, options, choices, keys, plain, files, after_folder, decode = proposed(
        ["espalier", ""], ["espalier", "re"], ["espalier", "stage", "t"], ["espalier", "run", "--"],
        ["espalier", "tag", "--from", "conll"], ["espalier", "run", "--set", "crf."], ["espalier", "doctor", ""],
        ["espalier", "tag", ""], ["espalier", "-C", "run", "pla"], ["espalier", "tag", "x.conll", "--decode", ""],
    )  # fmt: skip
    assert first == [command.name for command in cli.DECLARED]
    assert few == ["restore", "reproduce"]
    assert stages == ["template", "train"]
    assert options == ["--params", "--set", "--quiet", "--direct", "--add", "--json", "--help"]
    assert choices == ["conll", "conllu"]
    assert keys == ["crf.rho1=", "crf.rho2="]
    assert plain == ["--json", "-h", "--help"]  # it has no arguments without a name
    assert files == []  # bash proposes files then
    assert after_folder == ["plan"]  # -C has a value
    assert decode == ["viterbi", "posterior"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_script_names_every_command_and_option(shell):
    text = script(shell, cli.DECLARED, cli.BEFORE, PARAMETERS)
    for command in cli.DECLARED:
        assert re.search(rf"\b{command.name}\b", text)
        for names, settings in command.arguments:
            for name in names if names[0].startswith("-") else ():
                assert (f"-l {name[2:]}" if shell == "fish" else name) in text
            for word in settings.get("choices") or ():
                assert word in text
    assert all(f"{name}=" in text for name in PARAMETERS)


@pytest.mark.parametrize(("shell", "others"), [("zsh", ["bash"]), ("fish", [])])
def test_a_shell_reads_the_script(shell, others, tmp_path):
    """What is written for zsh bash can read, too: its quotes are closed."""
    reader = next((one for one in (shell, *others) if shutil.which(one)), None)
    if reader is None:
        pytest.skip(f"no {shell} here")
    path = tmp_path / "script"
    path.write_text(script(shell, cli.DECLARED, cli.BEFORE, PARAMETERS), encoding="utf-8")
    done = subprocess.run([reader, "-n", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_command_prints_it_with_all_parameters(capsys):
    assert cli.main(["completion", "fish"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# Completion of espalier for fish") and "crf.rho1=" in out and "weigh.seed=" in out


def test_fish_proposes_commands_options_words_and_parameters(tmp_path):
    if not shutil.which("fish"):
        pytest.skip("no fish here")
    (tmp_path / "script").write_text(script("fish", cli.DECLARED, cli.BEFORE, PARAMETERS), encoding="utf-8")
    lines = ["re", "stage t", "tag --from conll", "run --set crf.", "run --di"]
    asked = "; echo ----; ".join(f'complete -C "espalier {line}"' for line in lines)
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source ./script; {asked}"], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0 and done.stderr == ""
    found = [[line.split("\t")[0] for line in part.split("\n") if line] for part in done.stdout.split("----\n")]
    parameters = ["crf.rho1=", "crf.rho2="]
    expected = [["reproduce", "restore"], ["template", "train"], ["conll", "conllu"], parameters, ["--direct"]]
    assert found == expected


@pytest.mark.parametrize(
    "keys, completed",
    [("sta", "stage"), ("stage te", "template"), ("run --dir", "--direct"), ("tag --decode post", "posterior"),
     ("run --set train.s", "train.seed=")],
)  # fmt: skip
def test_zsh_completes_commands_options_words_and_parameters(tmp_path, keys, completed):
    if not shutil.which("zsh"):
        pytest.skip("no zsh here")
    (tmp_path / "script").write_text(script("zsh", cli.DECLARED, cli.BEFORE, PARAMETERS), encoding="utf-8")
    ours, theirs = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TERM": "dumb", "PS1": "> "}
    shell = subprocess.Popen(
        ["zsh", "-f", "-i"], cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, env=environment,
        start_new_session=True,
    )  # fmt: skip

    def until(text, shown=""):
        end = time.monotonic() + 60  # against hanging only
        while text not in shown and time.monotonic() < end:
            if select.select([ours], [], [], 1)[0]:
                shown += os.read(ours, 4096).decode().replace("\a", "")
        return shown

    try:
        os.write(ours, b"autoload -Uz compinit; compinit -u; source ./script; echo re''ady\n")
        assert "ready" in until("ready")
        os.write(ours, f"espalier {keys}\t".encode())
        rest = completed.removeprefix(keys.split()[-1])
        assert until(keys + rest).rstrip().endswith(f"espalier {keys}{rest}")
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)
        os.close(theirs)
