"""The cost of a tool round in LangGraph: an agent with one tool, a model over HTTP, and SqliteSaver.

As in the bench of Polity, the cost of a run without rounds is subtracted from that of a run with many.
Prints one JSON object.
"""

import argparse
import json
import sqlite3
import statistics
import time

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite import SqliteSaver

options = argparse.ArgumentParser()
options.add_argument("--url", required=True, help="where the model answers")
options.add_argument("--acting", required=True, help="the model that asks for its tool")
options.add_argument("--answering", required=True, help="the model that answers at once")
options.add_argument("--rounds", type=int, required=True, help="how often the former asks")
options.add_argument("--tasks", type=int, required=True, help="how many runs of each to measure")
options.add_argument("--database", required=True, help="the file for checkpoints")
options = options.parse_args()


@tool
def note(who: str, n: int) -> str:
    """Notes a number."""
    return f"noted {n} of {who}"


saver = SqliteSaver(sqlite3.connect(options.database, check_same_thread=False))


def agent(name):
    model = ChatOpenAI(model=name, base_url=options.url, api_key="none", max_retries=0)
    return create_agent(model, [note], system_prompt="Note every number.", checkpointer=saver)


def cost(agent, rounds, thread):
    """The processor and clock time of one run, in seconds."""
    config = {"configurable": {"thread_id": thread}, "recursion_limit": 10 * (rounds + 1)}
    cpu, clock = time.process_time(), time.perf_counter()
    done = agent.invoke({"messages": [("user", thread)]}, config)
    cost = time.process_time() - cpu, time.perf_counter() - clock
    messages = done["messages"]
    assert messages[-1].content == "done" and len(messages) == 2 + 2 * rounds, messages
    return cost


acting, answering = agent(options.acting), agent(options.answering)
cost(acting, options.rounds, "warm up")
cost(answering, 0, "warm up too")
with_rounds, without = [], []
for number in range(options.tasks):
    with_rounds.append(cost(acting, options.rounds, f"task {number}"))
    without.append(cost(answering, 0, f"other task {number}"))


def one_round(kind):
    middle = [statistics.median(cost[kind] for cost in costs) for costs in (with_rounds, without)]
    return (middle[0] - middle[1]) / options.rounds * 1e3


print(json.dumps({"cpu_ms": one_round(0), "clock_ms": one_round(1)}))
