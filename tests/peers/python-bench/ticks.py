"""The cost of an agent's tick in Mesa.

With `--chart w1` the agents have eight states. After five ticks in a state, an agent takes its timeout.
Otherwise it tries its transitions in order, each with a probability of one half. With `--chart market`
the agents implement the chart `market.yaml` of the bench. Each agent keeps its last fifty transitions.
Prints agent-ticks per CPU-second.
"""

import argparse
import time
from collections import deque

import mesa

options = argparse.ArgumentParser()
options.add_argument("--chart", choices=["w1", "market"], default="w1", help="what they do")
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


class Agent(mesa.Agent):
    def __init__(self, model):
        super().__init__(model)
        self.state = 0
        self.ticks_in_state = 0
        self.history = deque(maxlen=DEPTH)

    def go(self, target, trigger):
        self.history.append((self.state, target, trigger, self.model.tick))
        self.state = target
        self.ticks_in_state = 0


class Person(Agent):
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


WATCHING, BIDDING, HOLDING, SELLING, BROKE, WAITING = range(6)


class Trader(Agent):
    def __init__(self, model):
        super().__init__(model)
        self.cash = 100.0
        self.goods = 0.0
        self.nerve = 0.5
        self.bid = 0.0
        self.patience = 6.0

    def step(self):
        state = self.state
        if state in (BIDDING, HOLDING, SELLING):
            if self.ticks_in_state + 1 > self.patience:
                self.go(WATCHING, "timeout")
                return
        elif state in (WAITING, BROKE) and self.ticks_in_state + 1 > 8:
            self.cash = 100.0
            self.go(WATCHING, "timeout")
            return
        draw, world = self.model.random.random, self.model
        if state in (WATCHING, BIDDING, HOLDING) and draw() < 0.1:
            if draw() > self.nerve:
                self.nerve *= 0.99
                self.go(WAITING, "scare")
                return
        elif state in (WAITING, BROKE) and draw() < 0.05:
            self.nerve = (self.nerve + 0.5) / 2
            self.go(WATCHING, "cheer")
            return
        elif state == WATCHING:
            if self.cash > world.price * 2 and draw() < self.nerve * 0.8:
                self.bid = world.price * (0.9 + draw() / 5)
                self.go(BIDDING, "tick")
                return
            if self.cash - world.price < 5 * self.nerve or draw() < 0.1:
                self.go(WAITING, "tick")
                return
        elif state == BIDDING:
            if self.bid >= world.price * (0.95 + draw() * 0.1) and self.bid <= self.cash:
                self.cash -= self.bid
                self.goods += 1
                world.volume += 1
                world.turnover += self.bid
                self.go(HOLDING, "tick")
                return
            if (self.bid + 1) / world.price < 0.97 + draw() * 0.05:
                self.go(WATCHING, "tick")
                return
            self.bid *= 1.01
        elif state == HOLDING:
            if world.price * self.goods - self.bid > 0 - 3 * draw() and self.goods >= 1:
                self.go(SELLING, "tick")
                return
            if self.goods * self.nerve < 2 * draw() and self.cash > 20:
                self.go(BIDDING, "tick")
                return
        elif state == SELLING:
            if self.goods >= 1 and draw() * 2 < 1.4 - self.nerve / 2:
                self.goods -= 1
                self.cash += world.price * 0.99
                self.go(WATCHING, "tick")
                return
            if 1 / (self.goods + 1) < draw():
                self.go(HOLDING, "tick")
                return
        elif state == WAITING:
            if self.cash * (self.nerve + draw()) > 10:
                self.go(WATCHING, "tick")
                return
            if self.cash + self.goods * world.price < 1:
                self.go(BROKE, "tick")
                return
        self.ticks_in_state += 1


class Society(mesa.Model):
    def __init__(self, kind, agents):
        super().__init__(seed=42)
        self.tick = 0
        self.price, self.volume, self.turnover = 10.0, 0.0, 0.0
        kind.create_agents(self, agents)

    def step(self):
        self.tick += 1
        self.agents.do("step")


society = Society({"w1": Person, "market": Trader}[options.chart], options.agents)
began = time.process_time()
for _ in range(options.ticks):
    society.step()
print(options.agents * options.ticks / (time.process_time() - began))
