"""The names of tagging schemes; read for a `--help`, so it loads nothing."""

PREFIXES = {"iob2": "BI", "iob1": "BI", "bioes": "BIES"}
ALIASES = {"bio": "iob2", "iobes": "bioes"}
AUTO = "auto"  # the scheme that the labels have
