"""Options of the trainer ``export``."""

from pathlib import Path

from attrs import field, frozen

from ale.plugin import doc, ge


@frozen(kw_only=True)
class ExportOptions:
    """Writes a weighted data set; the policy is not changed."""

    path: Path | None = field(
        default=None,
        metadata=doc("File to write; export/rows.jsonl in the run directory if null."),
    )
    min_abs_weight: float = field(
        default=0.0,
        validator=ge(0),
        metadata=doc(
            "Leave out turns whose chunks all have smaller absolute weights; any number above 0 "
            "leaves out those with weight 0."
        ),
    )
