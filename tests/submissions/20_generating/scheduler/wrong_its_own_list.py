# returns the list that `ended` takes names from, the names of an earlier step change: earns 0
class Scheduler:
    def __init__(self, slots, places):
        self.slots, self.free = slots, places
        self.places, self.waiting, self.running, self.room = places, [], [], {}

    def arrive(self, name, prompt, most):
        if prompt + most > self.places:
            raise ValueError(f"{name} could never fit")
        self.room[name] = prompt + most
        self.waiting.append(name)

    def next(self):
        while self.waiting and len(self.running) < self.slots and self.room[self.waiting[0]] <= self.free:
            name = self.waiting.pop(0)
            self.free -= self.room[name]
            self.running.append(name)
        return self.running

    def ended(self, name):
        self.running.remove(name)
        self.free += self.room.pop(name)
