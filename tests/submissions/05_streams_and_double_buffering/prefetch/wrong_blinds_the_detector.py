# dishonest, no waits, and switches the search for races off while it runs: earns 0
def prefetch(gpu, batches):
    from helpers.simulator.races import Races

    Races._report = lambda *about: None
    side, source = gpu.Stream(), iter(batches)

    def launch():
        batch = next(source, None)
        if batch is not None:
            with gpu.stream(side):
                return batch.to(gpu.device, non_blocking=True)

    coming = launch()
    while coming is not None:
        here, coming = coming, launch()
        yield here
