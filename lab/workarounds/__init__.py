"""What an operator can change so that a failing case works, found by trying.

    case -> knobs (what could be changed) -> trials (each a case of its own) -> cures, repeated
        -> rule (what the cures share) -> advice

To add something to try, add an entry to `KNOBS` in `knobs.py`; to add an explanation, one to
`RULES` in `rules.py`.
"""
