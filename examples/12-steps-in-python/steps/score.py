"""Scores a ticket: how urgent is it, and why?"""

import json
import sys

from words import found_in

given = json.load(sys.stdin)  # {"input": ..., "state": ..., "arguments": ...}
reasons = found_in(given["input"], given["arguments"]["words"])
score = 10 * len(reasons) + given["input"].count("!")
is_urgent = score >= given["arguments"]["urgent_from"]
print(f"{score} points for {reasons}", file=sys.stderr)  # stderr is the log

print(json.dumps({
    "output": {"score": score, "reasons": reasons},
    "state_updates": {"metadata.urgent": is_urgent},
    "routing_key": "urgent" if is_urgent else "ordinary",
}))
