"""What a tick of an agent costs in Mesa.

The agents have eight states. One that has been in its state for five ticks takes its timeout; else
its transitions are tried in order, and each passes with a chance of one half. The last fifty
transitions of each are kept. Prints the ticks of agents per second of CPU.
"""

import argparse
import time
from collections import deque

import mesa

options = argparse.ArgumentParser()
options.add_argument("--agents", type=int, required=True, help="how many agents there are")
options.add_argument("--ticks", type=int, required=True, help="how many ticks they live")
options = options.parse_args()

IDLE, SCROLLING, EVALUATING, COMPOSING, LIKE, REPLY, RESHARE, RESTING = range(8)
TARGETS = {
    IDLE: (SCROLLING, RESTING),
    SCROLLING: (EVALUATING, RESTING),
    EVALUATING: (LIKE, REPLY, RESHARE, COMPOSING),
    COMPOSING: (SCROLLING,),
    LIKE: (SCROLLING,),
    REPLY: (COMPOSING, SCROLLING),
    RESHARE: (SCROLLING,),
    RESTING: (IDLE,),
}
TIMEOUTS = {
    IDLE: SCROLLING,
    SCROLLING: IDLE,
    EVALUATING: SCROLLING,
    COMPOSING: IDLE,
    LIKE: SCROLLING,
    REPLY: SCROLLING,
    RESHARE: IDLE,
    RESTING: IDLE,
}
THRESHOLD = 5
DEPTH = 50


class Person(mesa.Agent):
    def __init__(self, model):
        super().__init__(model)
        self.state = IDLE
        self.ticks_in_state = 0
        self.history = deque(maxlen=DEPTH)

    def step(self):
        if self.ticks_in_state >= THRESHOLD:
            self.go(TIMEOUTS[self.state], "timeout")
            return
        draw = self.model.random.random
        for target in TARGETS[self.state]:
            if draw() < 0.5:
                self.go(target, "tick")
                return
        self.ticks_in_state += 1

    def go(self, target, trigger):
        self.history.append((self.state, target, trigger, self.model.tick))
        self.state = target
        self.ticks_in_state = 0


class Society(mesa.Model):
    def __init__(self, agents):
        super().__init__(seed=42)
        self.tick = 0
        Person.create_agents(self, agents)

    def step(self):
        self.tick += 1
        self.agents.do("step")


society = Society(options.agents)
began = time.process_time()
for _ in range(options.ticks):
    society.step()
print(options.agents * options.ticks / (time.process_time() - began))
