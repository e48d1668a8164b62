# lets nobody in until all have ended: earns 0

class Scheduler:
    def __init__(self, slots, places):
        self.slots, self.places = slots, places
        self.waiting, self.running = [], {}

    def arrive(self, name, prompt, most):
        if prompt + most > self.places:
            raise ValueError(f"{name} needs {prompt + most} places of {self.places}")
        self.waiting.append((name, prompt + most))

    def next(self):
        if self.running:
            return list(self.running)
        while self.waiting and len(self.running) < self.slots:
            name, need = self.waiting[0]
            if sum(self.running.values()) + need > self.places:
                break
            self.running[name] = need
            self.waiting.pop(0)
        return list(self.running)

    def ended(self, name):
        del self.running[name]
