"""The only reader and writer of artefacts: where each lies, what it holds, and how it is written whole.

Everything is written to a temporary name in the same folder and then renamed, so that a
reader, a crash or a full disk never leaves half a file in the place of a good one.

`places` names the artefacts, `files` writes whole files, `records` reads JSON, `tables` reads and writes Arrow;
`tokens` and `features` are the tables of the stages, `models` the models. Callers say
`from espalier.tasks import store` and `store.NAME`.
"""

# ruff: noqa: F401 (names for callers)

from espalier.tasks.store.features import (
    Shard,
    Shards,
    read_dataset,
    read_shard,
    read_shards,
    read_vocabulary,
    read_weights,
    remove_stale_shards,
    shard_name,
    write_shard,
)
from espalier.tasks.store.files import NO_ROOM, file_hash, replacing, write_csv, write_json, write_jsonl, write_text
from espalier.tasks.store.models import read_model, write_model
from espalier.tasks.store.places import (
    ARCHIVE,
    CANDIDATE,
    CHAMPION,
    CLUSTERS,
    CURVES,
    DECISION,
    DECISIONS,
    FEATURES,
    HISTORY,
    KNOWN,
    MANIFEST,
    MARKER,
    METRICS,
    NEWS,
    PREDICTIONS,
    PROFILE,
    REPORT,
    RHO1_PATH,
    SPLITS,
    START,
    TIMING,
    TOKENS,
    TRACE,
    VOCABULARY,
    WEIGHTS,
)
from espalier.tasks.store.records import (
    last_decision,
    read_clusters,
    read_decision,
    read_decisions,
    read_history,
    read_json,
    read_jsonl,
    read_known_version,
    read_manifest,
    read_marker,
    read_metrics,
    read_news,
    read_path,
    read_profile,
    read_timing,
    read_trace,
)
from espalier.tasks.store.tables import arrow_texts, arrow_writer, read_arrow, read_batches, write_arrow
from espalier.tasks.store.tokens import (
    SET_MARK,
    read_tokens,
    sequence_offsets,
    token_blocks,
    token_info,
    token_writer,
    write_tokens,
)
