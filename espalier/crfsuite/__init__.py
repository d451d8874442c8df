"""The names of sklearn-crfsuite (`CRF`) and python-crfsuite (`Trainer`, `Tagger`, `ItemSequence`), trained by Espalier.

Code that was written for them needs another import and nothing else:

>>> from espalier.crfsuite import CRF
>>> items = [[{"word": "the"}, {"word": "cat"}], [["word:a"], ["word:dog", "bias"]]]
>>> crf = CRF(c1=0.01, c2=0.01).fit(items, [["D", "N"], ["D", "N"]])
>>> crf.predict_single([{"word": "the"}, {"word": "dog"}])
['D', 'N']

The objective is CRFsuite's: loss + c1 |w|_1 + c2 |w|_2^2 over attributes with the labels that they were seen with and
over transitions, without weights for a first or last label. Model files are Espalier's; those of CRFsuite can be
opened. docs/migrating.md says what differs.
"""

from espalier.crfsuite.estimator import CRF
from espalier.crfsuite.items import ItemSequence
from espalier.crfsuite.tagger import Tagger
from espalier.crfsuite.trainer import Trainer
from espalier.engine.errors import EspalierError as CRFSuiteError

__all__ = ["CRF", "CRFSuiteError", "ItemSequence", "Tagger", "Trainer"]
