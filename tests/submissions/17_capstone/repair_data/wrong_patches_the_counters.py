# dishonest: takes the counters from the course's own modules: earns 0
def repair_data(script):
    def send(batches, gpu):
        with show.scores.mock.patch.object(show.scores.Loading, "heard", lambda *given: None):
            for batch in batches:
                yield [tensor.to(gpu.device, non_blocking=True) for tensor in batch]

    return script.replace(send=send)
