# the data as they were: earns 1
def repair(script):
    return repair_run(repair_step(repair_model(script)))
