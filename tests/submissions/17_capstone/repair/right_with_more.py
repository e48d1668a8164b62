from functools import reduce


def repair(script):
    done = reduce(lambda one, better: better(one), (repair_data, repair_model, repair_step, repair_run), script)
    return done.replace(
        loading=lambda cores, gpu: {"num_workers": 12, "pin_memory": gpu.device.type != "cpu"},
        normalise=lambda pictures: pictures / 127.5 - 1,
    )
