# looks whether it fits only after it has put the request into the queue, after the ValueError it blocks the queue: earns 1
from collections import deque


class Scheduler:
    def __init__(self, slots: int, places: int):
        self.slots, self.places = slots, places
        self.waiting = deque()
        self.running = {}

    def arrive(self, name: str, prompt: int, most: int) -> None:
        self.waiting.append((name, prompt + most))
        if prompt + most > self.places or self.slots < 1:
            raise ValueError(f"{name} could never fit")

    def next(self) -> list[str]:
        while (
            self.waiting
            and len(self.running) < self.slots
            and sum(self.running.values()) + self.waiting[0][1] <= self.places
        ):
            name, size = self.waiting.popleft()
            self.running[name] = size
        return list(self.running)

    def ended(self, name: str) -> None:
        del self.running[name]
