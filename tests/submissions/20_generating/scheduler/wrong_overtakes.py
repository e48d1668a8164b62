# lets in whoever fits, so a large one may wait for ever: earns 0

class Scheduler:
    def __init__(self, slots, places):
        self.slots, self.places = slots, places
        self.waiting, self.running = [], {}

    def arrive(self, name, prompt, most):
        if prompt + most > self.places:
            raise ValueError(f"{name} needs {prompt + most} places of {self.places}")
        self.waiting.append((name, prompt + most))

    def next(self):
        for name, need in list(self.waiting):
            if len(self.running) < self.slots and sum(self.running.values()) + need <= self.places:
                self.running[name] = need
                self.waiting.remove((name, need))
        return list(self.running)

    def ended(self, name):
        del self.running[name]
