class Scheduler:
    def __init__(self, slots: int, places: int) -> None:
        self.free_slots, self.free_places, self.room = slots, places, places
        self.queue: list[str] = []
        self.need: dict[str, int] = {}
        self.now: list[str] = []

    def arrive(self, name: str, prompt: int, most: int) -> None:
        if prompt + most > self.room:
            raise ValueError("can never fit")
        self.queue += [name]
        self.need[name] = prompt + most

    def next(self) -> list[str]:
        while self.queue and self.free_slots and self.need[self.queue[0]] <= self.free_places:
            first, *self.queue = self.queue
            self.now += [first]
            self.free_slots -= 1
            self.free_places -= self.need[first]
        return [*self.now]

    def ended(self, name: str) -> None:
        self.now.remove(name)
        self.free_slots += 1
        self.free_places += self.need.pop(name)
