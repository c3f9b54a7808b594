"""Uses a client that openapi-python-client generates: submits, waits, lists and misses a task."""

import sys
import uuid

from polity_client import AuthenticatedClient
from polity_client.api.tasks import list_tasks, show_task, submit_task
from polity_client.models import Problem, TaskRequest

url, token = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=token)

body = TaskRequest.from_dict({"agent": "greeter", "input": "Ada"})
task = submit_task.sync(client=client, body=body, wait="60s", idempotency_key="python")
assert task.status == "completed", task
assert task.result == "Hello, Ada.", task

page = list_tasks.sync(client=client, limit=10)
assert [item.id for item in page.items] == [task.id], page

unknown = uuid.UUID("00000000-0000-4000-8000-000000000000")
missing = show_task.sync_detailed(unknown, client=client)
assert missing.status_code == 404, missing
assert isinstance(missing.parsed, Problem), missing
assert missing.parsed.code == "not_found", missing
print("ok")
