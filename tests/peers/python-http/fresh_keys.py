"""A hook of Schemathesis: each request has an Idempotency-Key of its own.

Generated keys repeat, and the server refuses a repeated key with another body, as documented.
"""

import itertools

import schemathesis

NAME = "Idempotency-Key"
numbers = itertools.count()


@schemathesis.hook
def before_call(context, case, kwargs):
    key = (case.headers or {}).get(NAME)
    # An invalid key stays as it is: the server must refuse it.
    if isinstance(key, str) and 1 <= len(key) <= 255 and all(" " <= c <= "~" for c in key):
        case.headers[NAME] = f"key-{next(numbers)}"
