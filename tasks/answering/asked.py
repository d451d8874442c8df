"""What a user asks of a model: how the input is to be read, and what is to be answered."""

from dataclasses import dataclass, replace

from espalier.engine.errors import EspalierError, quoted
from espalier.engine.families.labeller import Labeller
from espalier.engine.labels.abstention import check_limit
from espalier.engine.labels.scheme import Transitions
from espalier.tasks.answering.own_format import Letters, OwnFormat, format_of

MARK = "?"


@dataclass(frozen=True)
class Asked:
    """How the input is to be read and what is to be answered."""

    words: bool = False  # each line is a sequence, its characters are the tokens
    separator: str | None = None  # between columns; None is any run of blanks and tabs
    scores: bool = False  # probabilities of labels and sequences
    nbest: int = 0  # labellings with their log-probabilities; 0 is the best alone
    format: str | None = None  # of the answers; None: JSON lines for JSON lines, else columns
    scheme: str | None = None  # of the transitions that are allowed; see engine.labels.scheme
    known: int | None = None  # column of labels that are known beforehand
    unknown: str | None = None  # what stands in it where nothing is known; None: as in the training files, or _
    source: str | None = None  # the format of the input; None: by its name
    decode: str | None = None  # viterbi or posterior; None: as the model says
    labels: str | None = None  # the scheme that labels are answered in; None: that of the training files, model: none
    likelihood: bool = False  # log P(x) of each sequence
    abstain: float | None = None  # the probability below which a label is left out
    mark: str = MARK  # what stands in its place; null in JSON
    own: OwnFormat = OwnFormat()  # of the files that the model was trained on

    def completed(self, model: Labeller, file: str = "-") -> "Asked":
        """With what the model knows of its files where nothing was asked for."""
        own = OwnFormat.of(model.info)
        source = "words" if self.words else format_of(file, self.source, own)
        return replace(
            self, own=own, source=source, separator=self.separator or own.separator,
            format=self.format or ("jsonl" if source == "jsonl" else "columns"),
            unknown=self.unknown or own.unknown or "_", decode=model.decoder(self.decode),
            labels=None if self.labels == "model" else self.labels or own.scheme,
        )  # fmt: skip

    def transitions(self, model: Labeller) -> Transitions | None:
        if not self.scheme:
            return None
        from espalier.engine.labels.scheme import transitions_of

        return transitions_of(model.labels, True if self.scheme == "auto" else self.scheme)

    def _check_abstention(self, model: Labeller) -> None:
        check_limit(self.abstain, "--abstain")
        model.require("probability")
        if self.nbest:
            raise EspalierError("the n best labellings are given as they are: leave out --abstain or --nbest")
        if not self.mark or not self.mark.isprintable() or " " in self.mark or (self.separator or " ") in self.mark:
            raise EspalierError(f"the mark {quoted(self.mark)} could not be read back: expected a text without blanks")
        answered = Letters(model.labels, self.labels).names if self.labels else model.labels
        if self.mark in answered:
            raise EspalierError(
                f"{quoted(self.mark)} is a label of this model and cannot stand for one that is left out as well: say "
                "with --mark what does"
            )

    def check(self, model: Labeller) -> None:
        """What can be refused before anything is read."""
        if self.likelihood:
            model.require("likelihood")
        if self.abstain is not None:
            self._check_abstention(model)
        if self.scheme and self.decode == "posterior":
            raise EspalierError(
                "posterior decoding takes each label by itself and cannot keep to a scheme: leave --scheme out, or "
                "say --decode viterbi"
            )
        if self.nbest and self.decode == "posterior":
            raise EspalierError("the best labellings are those of Viterbi: leave --nbest out, or say --decode viterbi")
        if self.known is None:
            return
        if self.words or self.source not in ("conll", None):
            raise EspalierError("known labels need a column of their own: expected input in columns, without --words")
        if self.unknown in model.labels:
            raise EspalierError(
                f"{self.unknown!r} is a label of this model and cannot stand for an unknown one as well: "
                "say with --unknown what does"
            )
