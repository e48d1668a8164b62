# the data as they were: earns 2
def repair(script):
    return repair_run(repair_step(repair_model(script)))
