"""The cost of a no-op node in LangGraph with SqliteSaver.

For each line on stdin it runs a chain of nodes repeatedly, each run as a separate thread, and prints
the steps per second. Like Polity, the saver's database syncs each checkpoint.
"""

import argparse
import sqlite3
import sys
import time
from typing import TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

options = argparse.ArgumentParser()
options.add_argument("--nodes", type=int, required=True, help="how many nodes the chain has")
options.add_argument("--database", required=True, help="the file for checkpoints")
options.add_argument("--seconds", type=float, default=1.0, help="how long to run for each line")
options = options.parse_args()


class State(TypedDict):
    count: int


graph = StateGraph(State)
names = [f"n{number}" for number in range(options.nodes)]
for before, name in zip([START, *names], names):
    graph.add_node(name, lambda state: {"count": state["count"] + 1})
    graph.add_edge(before, name)
graph.add_edge(names[-1], END)
connection = sqlite3.connect(options.database, check_same_thread=False)
saver = SqliteSaver(connection)
saver.setup()
connection.execute("pragma synchronous = full")
chain = graph.compile(checkpointer=saver)

threads = 0


def run():
    global threads
    threads += 1
    config = {"configurable": {"thread_id": f"thread {threads}"}}
    done = chain.invoke({"count": 0}, config, durability="sync")
    assert done["count"] == options.nodes, done


run()
for _ in sys.stdin:
    began = time.perf_counter()
    runs = 0
    while time.perf_counter() - began < options.seconds:
        run()
        runs += 1
    print(runs * options.nodes / (time.perf_counter() - began), flush=True)
